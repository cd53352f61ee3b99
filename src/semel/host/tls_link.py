"""TLS over any other Link, real or simulated, for either side: an SSLObject between two buffers in memory.

`handshake` first, then everything a Link does. A peer that ends the connection without TLS's own farewell counts as a
clean end, `closed(None)`: what travels here are frames that carry their length, so half a frame is noticed anyway.
Memory is bounded: plaintext is queued by reference as in any link, and encrypted only while the link below has less
than `MOST_CIPHERTEXT_BYTES` to send; a receiver that pauses stops that link, which has handed over one read at most.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

from semel.host.api import FileRange, Link, Part, Receiver, made
from semel.host.tls_errors import explained

MOST_CIPHERTEXT_BYTES = 256 << 10
PIECE_BYTES = 64 << 10  # of plaintext, encrypted at a time: four TLS records
TURN_BYTES = 1 << 20  # about a millisecond of encryption; then the others have their turn
FIRST_READ_BYTES = 16 << 10
MOST_READ_BYTES = 256 << 10

_log = logging.getLogger(__name__)


class State(Enum):
    """
    NEW --> SHAKING --> OPEN --> CLOSING (close_when_sent: what is queued goes out, what comes in is dropped)
     |         |          |         |
     +---------+----------+---------+--> ENDED
    """

    NEW = auto()
    SHAKING = auto()
    OPEN = auto()
    CLOSING = auto()
    ENDED = auto()


MOVES: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.SHAKING, State.ENDED}),
    State.SHAKING: frozenset({State.OPEN, State.ENDED}),
    State.OPEN: frozenset({State.CLOSING, State.ENDED}),
    State.CLOSING: frozenset({State.ENDED}),
    State.ENDED: frozenset(),
}


class TlsLink:
    if TYPE_CHECKING:
        unsent_bytes: int
    else:  # the link below sends on without telling, so this is counted when somebody looks

        @property
        def unsent_bytes(self) -> int:
            if self._state is State.ENDED:
                return 0
            return self._queued_bytes + len(self._piece) + self._outgoing.pending + self._link.unsent_bytes

    def __init__(
        self, link: Link, context: ssl.SSLContext, *, server_hostname: str | None, server_side: bool = False
    ) -> None:
        self.peer = link.peer
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._state = State.NEW
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._shaken: asyncio.Future[None] | None = None
        self._receiver: Receiver | None = None
        self._paused = True  # until somebody is there to receive
        self._reading_turn: asyncio.Handle | None = None
        self._queue: deque[Part] = deque()
        self._queued_bytes = 0
        self._head_taken = 0  # of the part at the head of the queue
        self._piece = memoryview(b"")  # out of the queue, not encrypted yet
        self._waited = False  # some of what was sent had to wait: `drained` is owed
        self._sending_turn: asyncio.Handle | None = None
        self._reason: BaseException | None = None

    def __repr__(self) -> str:
        return f"TlsLink({self.peer}, {self._state.name.lower()})"

    def peer_certificate(self) -> dict[str, Any] | None:
        """The certificate that the peer has proved to own, as `ssl.SSLSocket.getpeercert` gives it; None if none."""
        return self._tls.getpeercert() or None

    # The handshake

    async def handshake(self) -> None:
        """Agree with the peer on keys, and check its certificate as the context demands.

        Raises ssl.SSLError or ConnectionError, and the link has ended then; so it has when this is cancelled, which is
        how a caller sets a time limit. In TLS 1.3 a server judges the client's certificate after the client's side
        is done: its refusal comes as the reason of `closed`.
        """
        if self._state is State.ENDED:
            raise ConnectionAbortedError(f"the connection to {self.peer} was closed before the TLS handshake")
        self._move(State.SHAKING)
        self._shaken = self._loop.create_future()
        self._link.start(_Ciphertext(self))
        self._shake()
        try:
            await self._shaken
        except BaseException:
            self._end(None)
            raise

    def _shake(self) -> None:
        assert self._shaken is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._flush()
            self._link.pause_reading()
            self._move(State.OPEN)
            if not self._shaken.done():
                self._shaken.set_result(None)

    # Reading

    def start(self, receiver: Receiver) -> None:
        if self._receiver is not None:
            raise ValueError("the link was started already")
        if self._state in (State.NEW, State.SHAKING):
            raise ValueError("a TLS link is started after its handshake")
        self._receiver = receiver
        self._get_buffer = receiver.get_buffer
        self._receiver_received = receiver.received
        if self._state is State.ENDED:
            self._loop.call_soon(self._announce)
        else:
            self.resume_reading()

    def pause_reading(self) -> None:
        self._paused = True
        if self._state is State.OPEN:
            self._link.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._receiver is not None:
            self._schedule_reading()

    def _schedule_reading(self) -> None:
        if self._reading_turn is None and self._state is State.OPEN:
            self._reading_turn = self._loop.call_soon(self._go_on_reading)

    def _go_on_reading(self) -> None:
        """What was left when the receiver paused comes first, and only then more from the link below."""
        self._reading_turn = None
        self._deliver()
        if self._state is State.OPEN and not self._paused:
            self._link.resume_reading()

    def ciphertext_received(self, data: memoryview) -> None:
        if self._state is State.OPEN:
            self._incoming.write(data)
            self._deliver()
            if self._piece:  # encryption waited for this: a peer of TLS 1.2 had asked for new keys
                self._pump()
        elif self._state is State.SHAKING:
            self._incoming.write(data)
            self._shake()

    def _deliver(self) -> None:
        """Decrypt what is there for the receiver, until it pauses."""
        while self._state is State.OPEN and not self._paused and (self._incoming.pending or self._tls.pending()):
            try:
                buffer = self._get_buffer()
                if not buffer:
                    raise ValueError("the receiver gave an empty buffer")
                count = self._decrypt_into(buffer)
                if count is None:
                    break
                reply = made(self._receiver_received(count))
                if reply is not None:
                    self.send([reply])
            except Exception as error:
                self._receiver_failed(error)
                return
        if self._state is State.OPEN:
            self._flush()  # TLS may have had an answer of its own to give

    def _decrypt_into(self, buffer: memoryview) -> int | None:
        """How many bytes, or None: a whole TLS record is not there yet, or the link has ended."""
        try:
            count = cast(int, self._tls.read(len(buffer), buffer))
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError as error:
            self._fail(error)
            return None
        if count == 0:
            self._end(None)
        return count or None

    def _receiver_failed(self, error: Exception) -> None:
        _log.error("the receiver of %s failed: its connection is closed", self.peer, exc_info=error)
        self._end(error)

    # Sending

    def send(self, parts: Sequence[Part]) -> None:
        if self._state in (State.NEW, State.SHAKING):
            raise ValueError("a TLS link can send after its handshake")
        if self._state is not State.OPEN:
            _release(parts)
            return
        was_waiting = bool(self._queued_bytes or self._piece)
        self._queue.extend(parts)
        self._queued_bytes += sum(map(len, parts))
        if not was_waiting:
            self._pump()
        if self.unsent_bytes:
            self._waited = True

    def _pump(self) -> None:
        """Encrypt from the queue while the link below keeps up, and no more than this turn's share."""
        left = TURN_BYTES
        try:
            while (self._queue or self._piece) and self._link.unsent_bytes < MOST_CIPHERTEXT_BYTES:
                if left <= 0:
                    if self._sending_turn is None:
                        self._sending_turn = self._loop.call_soon(self.ciphertext_drained)
                    return
                if not self._piece:
                    self._piece = self._take_piece()
                    left -= len(self._piece)
                while self._piece:
                    self._piece = self._piece[self._tls.write(self._piece) :]
                self._flush()
        except ssl.SSLWantReadError:
            self._flush()
        except Exception as error:
            self._fail(error)

    def _take_piece(self) -> memoryview:
        """The next bytes to encrypt: small parts joined into one TLS record, large ones and file ranges cut."""
        piece = bytearray()
        while self._queue and len(piece) < PIECE_BYTES:
            head = self._queue[0]
            start = self._head_taken
            left = len(head) - start
            count = min(left, PIECE_BYTES - len(piece))
            if isinstance(head, FileRange):
                data = head.file.read_at(head.position + start, count)
                if len(data) < count:
                    raise EOFError(f"{head!r} ended {left - len(data)} bytes early: the file was truncated")
                piece += data
            else:
                piece += memoryview(head)[start : start + count]
            self._queued_bytes -= count
            self._head_taken += count
            if count == left:
                self._queue.popleft()
                self._head_taken = 0
                if isinstance(head, FileRange):
                    head.release()
        return memoryview(piece)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._link.send([self._outgoing.read()])

    def ciphertext_drained(self) -> None:
        """The link below is ready for more, or a turn has passed."""
        self._sending_turn = None
        had_more = bool(self._queue or self._piece)
        self._pump()
        if self._state is State.CLOSING and had_more:
            self._close_if_sent()
        elif self._state is State.OPEN and self._waited and not self.unsent_bytes:
            self._waited = False
            if self._receiver is not None:
                try:
                    self._receiver.drained()
                except Exception as error:
                    self._receiver_failed(error)

    # Ending

    def close(self) -> None:
        self._end(None)

    def close_when_sent(self) -> None:
        if self._state in (State.NEW, State.SHAKING):
            self._end(None)
        elif self._state is State.OPEN:
            self._move(State.CLOSING)
            self._link.resume_reading()  # what comes is dropped: a peer that cannot write may never read our answer
            self._close_if_sent()

    def _close_if_sent(self) -> None:
        if not self._queue and not self._piece:
            self._say_farewell()
            self._link.close_when_sent()

    def _say_farewell(self) -> None:
        """Tell the peer that nothing more comes because we want it so; its own farewell is not waited for."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass
        self._flush()

    def ciphertext_ended(self, reason: BaseException | None) -> None:
        if self._state is not State.SHAKING:
            self._end(reason)
            return
        why = "perhaps it does not speak TLS on this port" if reason is None else str(reason)
        error = ConnectionResetError(f"{self.peer} ended the connection during the TLS handshake: {why}")
        error.__cause__ = reason
        self._end(error)

    def _fail(self, error: BaseException) -> None:
        """End with an error of ours; TLS has put its reason for the peer into the outgoing bytes."""
        self._flush()
        self._end(explained(error, self.peer) if isinstance(error, ssl.SSLError) else error, gently=True)

    def _end(self, reason: BaseException | None, *, gently: bool = False) -> None:
        """`gently`: the link below ends when what it has is sent."""
        if self._state is State.ENDED:
            return
        if self._state is State.OPEN and reason is None and not self._queue and not self._piece:
            self._say_farewell()  # not if anything is dropped: the peer would take the stream for whole
        self._move(State.ENDED)
        self._reason = reason
        for turn in (self._reading_turn, self._sending_turn):
            if turn is not None:
                turn.cancel()
        _release(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        self._piece = memoryview(b"")
        if gently:
            self._link.close_when_sent()
        else:
            self._link.close()
        if self._shaken is not None and not self._shaken.done():
            self._shaken.set_exception(
                reason or ConnectionAbortedError(f"the connection to {self.peer} was closed during the TLS handshake")
            )
        if self._receiver is not None:
            self._loop.call_soon(self._announce)  # later, so that nobody is told from inside their own send()

    def _announce(self) -> None:
        assert self._receiver is not None
        try:
            self._receiver.closed(self._reason)
        except Exception:
            _log.exception("the receiver of %s failed at the end of its connection", self.peer)

    def _move(self, state: State) -> None:
        if state not in MOVES[self._state]:
            raise ValueError(f"a TLS link that is {self._state.name} cannot become {state.name}")
        self._state = state


class _Ciphertext:
    """The Receiver of the link below. Its buffer grows with what really comes, so that idle links stay small."""

    def __init__(self, owner: TlsLink) -> None:
        self._owner = owner
        self._buffer = memoryview(bytearray(FIRST_READ_BYTES))

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        data = self._buffer[:count]
        if count == len(self._buffer) < MOST_READ_BYTES:
            self._buffer = memoryview(bytearray(2 * count))
        self._owner.ciphertext_received(data)

    def drained(self) -> None:
        self._owner.ciphertext_drained()

    def closed(self, reason: BaseException | None) -> None:
        self._owner.ciphertext_ended(reason)


def _release(parts: Sequence[Part] | deque[Part]) -> None:
    for part in parts:
        if isinstance(part, FileRange):
            part.release()
