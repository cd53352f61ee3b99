"""One end of a simulated connection, and the pipe that carries its bytes to the other end."""

from __future__ import annotations

import contextvars
import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, cast

from semel.host.api import Buffer, FileRange, LaterReply, Link, Part, Receiver, made
from semel.sim.loop import SimHandle
from semel.sim.power import PowerLost

if TYPE_CHECKING:
    from semel.sim.network import Wires

WINDOW_BYTES = 64 * 1024
WORTHWHILE_BYTES = WINDOW_BYTES // 2  # no chunk for every byte taken, or chunks only ever get smaller
WHOLE_CHUNK_CHANCE = 0.7

_log = logging.getLogger(__name__)


class Pipe:
    """Bytes from one end to the other: a queue at the sender, at most a window of them on the way, in order.

    The window counts bytes that the other end's receiver has not taken yet, so a paused reader stops its sender.
    """

    def __init__(self, wires: Wires, sender: SimLink, reader: SimLink) -> None:
        self._wires = wires
        self._sender = sender
        self._reader = reader
        self._queue: deque[Part] = deque()
        self._head_sent = 0
        self._on_the_way = 0
        self._flying: deque[bytes | None] = deque()  # None is the end of the stream
        self._held_up = 0  # of the flying ones, those that wait at a partition
        self._arrives_s = 0.0  # when the last chunk sent will arrive: later ones do not overtake it
        self._generation = 0  # chunks of an older one were lost on the way
        self._vanishing = False
        self._wakes: str | None = None
        self._ending = False
        self.waited = False

    def put(self, parts: Sequence[Part]) -> None:
        """What is sent in one call leaves together, as with a real socket; only ranges of files stay what they are."""
        for is_range, together in groupby(parts, lambda part: isinstance(part, FileRange)):
            if is_range:
                self._queue.extend(together)
            else:
                self._queue.append(b"".join(cast(Iterator[Buffer], together)))
        self._sender.unsent_bytes += sum(map(len, parts))
        self.pump()
        if self._queue:
            self.waited = True

    def pump(self) -> None:
        """Send chunks of random size while the window has room."""
        while self._queue and (room := WINDOW_BYTES - self._on_the_way) >= self._worthwhile():
            chunk = self._take(room)
            if chunk and not self._vanishing:
                self._send(chunk)
            if chunk and self._wires.cut_chance and self._wires.random.random() < self._wires.cut_chance:
                self._wires.cut(self._sender)
                return
        if not self._queue:
            if self.waited:
                self.waited = False
                self._wires.loop.call_soon(self._sender.drained)
            if self._ending:
                self._ending = False
                self._send(None)
                self._sender.end(None)

    def _worthwhile(self) -> int:
        return min(WORTHWHILE_BYTES, len(self._queue[0]) - self._head_sent)

    def _take(self, most: int) -> bytes:
        head = self._queue[0]
        left = len(head) - self._head_sent
        random = self._wires.random
        take = min(left, most)
        if take > 1 and random.random() > WHOLE_CHUNK_CHANCE:
            take = random.randint(1, take)
        if isinstance(head, FileRange):
            chunk = head.file.read_at(head.position + self._head_sent, take)
            if len(chunk) < take:
                raise EOFError(f"{head!r} ended early: the file was truncated while it was sent")
        else:
            chunk = bytes(memoryview(head)[self._head_sent : self._head_sent + take])
        self._sender.unsent_bytes -= take
        self._head_sent += take
        if take == left:
            self._queue.popleft()
            self._head_sent = 0
            if isinstance(head, FileRange):
                head.release()
        return chunk

    def _send(self, chunk: bytes | None) -> None:
        if self._vanishing:
            return
        self._on_the_way += len(chunk or b"")
        self._flying.append(chunk)
        self._schedule_arrival()

    def _schedule_arrival(self) -> None:
        latency_s = self._wires.draw_latency_s(self._sender.node, self._reader.node)
        self._arrives_s = max(self._arrives_s, self._wires.loop.time() + latency_s)
        self._wires.loop.call_at(self._arrives_s, self._arrive, self._generation, context=self._wires.context)

    def _arrive(self, generation: int) -> None:
        """Whichever chunk is first arrives, so that a partition delays without reordering."""
        if generation != self._generation:
            return
        if self._wires.is_cut_off(self._sender.node, self._reader.node):
            self._held_up += 1
            self._wires.hold_up(self._sender.number, self)
        elif self._flying:  # else it was cut off
            self._reader.arrived(self._flying.popleft())

    def resume(self) -> None:
        """The partition has healed: what waited there arrives."""
        held_up, self._held_up = self._held_up, 0
        for _ in range(held_up):
            self._schedule_arrival()

    def taken(self, count: int) -> None:
        """The other end's receiver has taken bytes: the window moves on."""
        self._on_the_way -= count
        self._sender.pump()

    def end_after_queue(self) -> None:
        self._ending = True
        self.pump()

    def send_end(self) -> None:
        self._send(None)

    def drop_queue(self) -> None:
        for part in self._queue:
            if isinstance(part, FileRange):
                part.release()
        self._queue.clear()
        self._sender.unsent_bytes = 0

    def lose_everything(self) -> None:
        self._generation += 1
        self._flying.clear()
        self._held_up = 0
        self._vanishing = True

    def cut_short(self) -> None:
        """Of what flies only a part, from the front, will arrive, and nothing that is sent from now on."""
        random = self._wires.random
        self._vanishing = True
        survivors = random.randint(0, len(self._flying))
        while len(self._flying) > survivors:
            self._flying.pop()
        if self._flying and (last := self._flying[-1]) is not None and random.random() < 0.5:
            self._flying[-1] = last[: random.randint(1, len(last))]

    def vanish(self, until_started: str | None = None) -> None:
        """Swallow all from now on: the sender sees a peer that takes bytes and never answers."""
        self.lose_everything()
        self._on_the_way = 0
        self._wakes = until_started
        self.pump()

    def reset_reader(self) -> None:
        """Tell the other end that this one is gone, after what still flies."""
        latency_s = self._wires.draw_latency_s(self._sender.node, self._reader.node)
        when_s = max(self._arrives_s, self._wires.loop.time()) + latency_s
        self._wires.loop.call_at(when_s, self._reader.reset, context=self._wires.context)

    def answer_with_reset(self, started: str) -> None:
        if self._vanishing and self._wakes == started:
            self._wires.later(self._sender, self._sender.reset)


class SimLink:
    """Keeps the rules of the Link interface; errors and ends reach the receiver in a turn of their own."""

    other_end: SimLink
    outgoing: Pipe

    def __init__(self, wires: Wires, number: int, node: str) -> None:
        self.number = number
        self.node = node
        self.peer = ""
        self.unsent_bytes = 0
        self._wires = wires
        self._receiver: Receiver | None = None
        self._arrived: deque[bytes | None] = deque()
        self._paused = False
        self._closing = False
        self._is_ready = False  # waits for a round of its node
        self._reply: bytes | LaterReply | None = None  # of this round
        self.replies_later = False
        self._ended = False
        self._reason: BaseException | None = None
        self._turn: SimHandle | None = None
        self._context = contextvars.Context()
        """That of whoever started the link: what arrives is handled in it, not in that of the sender."""

    def __repr__(self) -> str:
        return f"SimLink({self.node} to {self.peer})"

    def start(self, receiver: Receiver) -> None:
        if self._receiver is not None:
            raise ValueError("the link was started already")
        self._receiver = receiver
        self._context = contextvars.copy_context()
        if self._ended:
            self._wires.loop.call_soon(self._announce)
        else:
            self._schedule()

    def offer_to(self, accept: Callable[[Link], None]) -> None:
        if self._ended:
            return
        try:
            accept(self)
        except PowerLost:
            pass
        except Exception:
            _log.exception("a connection from %s could not be served: it is closed", self.peer)
            self.close()

    # Reading

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._schedule()

    def arrived(self, chunk: bytes | None) -> None:
        if not self._ended:
            self._arrived.append(chunk)
            self._deliver()

    def _schedule(self) -> None:
        if self._arrived and self._turn is None and not self._ended:
            self._turn = self._wires.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self._deliver()

    def _deliver(self) -> None:
        """What has arrived is read in the next round of its node."""
        if not self._is_ready and not self._wires.loop.holds_back(self._context, self._deliver):
            self._is_ready = True
            self._wires.round_of(self.node).join(self)

    def read(self) -> bool:
        """As much as its receiver takes at once. Whether there is a reply to be sent when the round is over."""
        self._is_ready = False
        if self._wires.loop.holds_back(self._context, self._deliver):
            return False
        try:
            self._read()
        except PowerLost:
            pass
        except Exception as error:
            self._fail(error)
        if self._can_read:
            self._deliver()
        return self._reply is not None

    @property
    def _can_read(self) -> bool:
        return (
            bool(self._arrived)
            and not self._ended
            and (self._closing or (self._receiver is not None and not self._paused))
        )

    def _read(self) -> None:
        while self._can_read:
            chunk = self._arrived.popleft()
            if chunk is None:
                self.end(None)
            elif self._closing:
                self.other_end.outgoing.taken(len(chunk))
            else:
                self._hand_over(chunk)
                return

    def _hand_over(self, chunk: bytes) -> None:
        assert self._receiver is not None
        buffer = self._context.run(self._receiver.get_buffer)
        count = min(len(buffer), len(chunk))
        if count == 0:
            raise ValueError("the receiver gave an empty buffer")
        buffer[:count] = chunk[:count]
        if count < len(chunk):
            self._arrived.appendleft(chunk[count:])
        reply = self._context.run(self._receiver.received, count)
        self.replies_later = reply is not None and type(reply) is not bytes
        if not self._ended:
            self._reply = reply
        self.other_end.outgoing.taken(count)

    def make_reply(self) -> None:
        try:
            self._context.run(made, self._reply)
        except PowerLost:
            pass
        except Exception as error:
            self._fail(error)

    def send_reply(self) -> None:
        try:
            reply = self._take_reply()
            if reply is not None:
                self._context.run(self.send, [reply])
        except PowerLost:
            pass
        except Exception as error:
            self._fail(error)

    def _take_reply(self) -> bytes | None:
        """Whatever else is to be sent goes behind it."""
        kept, self._reply = self._reply, None
        return self._context.run(made, kept)

    def drained(self) -> None:
        if self._wires.loop.holds_back(self._context, self.drained):
            return
        if not self._ended and not self._closing and not self.outgoing.waited and self._receiver is not None:
            try:
                self._context.run(self._receiver.drained)
            except PowerLost:
                pass
            except Exception as error:
                self._fail(error)

    # Sending

    def send(self, parts: Sequence[Part]) -> None:
        if self._ended or self._closing:
            for part in parts:
                if isinstance(part, FileRange):
                    part.release()
            return
        reply = None if self._reply is None else made(self._reply)
        if reply is not None and self._reply is not None:
            parts = [reply, *parts]
        self._reply = None
        crash = self._wires.sending(self.node)
        if crash == "before":
            self._wires.blow_fuse(self.node)
        try:
            self.outgoing.put(parts)
        except (OSError, EOFError) as error:
            self._break_off(error)
        if crash is not None:
            self._wires.blow_fuse(self.node)

    def pump(self) -> None:
        if self._ended:
            return
        try:
            self.outgoing.pump()
        except PowerLost:
            pass
        except (OSError, EOFError) as error:
            self._break_off(error)

    # Ending

    def close(self) -> None:
        if not self._ended:
            self._wires.calling(self.node)
        if not self._ended:  # still
            self.outgoing.send_end()
            self.end(None)

    def close_when_sent(self) -> None:
        if not self._ended and not self._closing:
            self._closing = True
            self.outgoing.end_after_queue()
            self._schedule()

    def reset(self) -> None:
        self.end(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def time_out(self) -> None:
        self.end(TimeoutError(errno.ETIMEDOUT, "the peer does not answer probes"))

    def _fail(self, error: Exception) -> None:
        _log.error("the receiver of %s failed: its connection is closed", self.peer, exc_info=error)
        self._break_off(error)

    def _break_off(self, error: BaseException) -> None:
        if not self._ended:
            self._wires.later(self.other_end, self.other_end.reset)
            self.end(error)

    def abandon(self) -> None:
        """The node is gone: nobody is told anything."""
        self._receiver = None
        self.end(None)

    def end(self, reason: BaseException | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._reason = reason
        self._arrived.clear()
        self._drop_reply()
        self.outgoing.drop_queue()
        self._wires.forget(self)
        if self._receiver is not None:
            self._wires.loop.call_soon(self._announce)

    def _drop_reply(self) -> None:
        """It is made all the same, with the others: its request counts."""
        reply, self._reply = self._reply, None
        if reply is not None and self._receiver is not None:
            try:
                self._context.run(made, reply)
            except PowerLost:
                pass

    def _announce(self) -> None:
        if self._receiver is None or self._wires.loop.holds_back(self._context, self._announce):
            return
        try:
            self._context.run(self._receiver.closed, self._reason)
        except PowerLost:
            pass
        except Exception:
            _log.exception("the receiver of %s failed at the end of its connection", self.peer)
