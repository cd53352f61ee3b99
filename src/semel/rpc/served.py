"""One connection of a client, seen from the server: bytes to frames, frames to answers, answers in order.

A whole frame that arrived in one read is served where it lies, in the server's shared buffer; a larger one gets a
buffer of its own, which grows with what has come and is paid for from the server's memory budget: claims cost nothing.
A frame that does not come on is given up when others wait for memory (`comes_on`). While an answer is outstanding the
connection reads no further, as Kafka does, unless the request says that the next one may begin (a produce that waits
for its flush). A peer that does not read its answers is not read from either, so it costs a bounded amount of memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

from semel.host.api import FileRange, Link, Part
from semel.rpc.budget import Owner, Waiter
from semel.rpc.buffers import LARGEST_KEPT_BYTES, size_of
from semel.rpc.served_kernel import CountedReply, Receiving

if TYPE_CHECKING:
    from semel.rpc.server import Server

_LENGTH = Struct(">i")
_SMALLEST_FRAME_BYTES = 8
# The buffer of a frame is at most this many times as large as what has come of it, but for the smallest.
_GROWTH = 4
_SMALLEST_BUFFER_BYTES = 16 << 10
# Of a frame that is too large for a buffer which is copied when it grows, so much more is paid for at a time.
_STEP_BYTES = LARGEST_KEPT_BYTES
# While others wait for memory, a frame has to bring this part of what it holds in every second.
_LEAST_PART_PER_LOOK = 30
_MOST_LOOKS_WITHOUT = 3
# Of answers to one peer. The megabyte that a consumer asks for by default, with what is around its records, is not too
# much: otherwise reading would stop and begin again with each of them.
_MOST_UNSENT_BYTES = (1 << 20) + (16 << 10)
_MOST_OUTSTANDING = 64
# Frames that one connection may have served in a row while others wait for their turn.
_MOST_PER_TURN = 16

_API_KEY_AT = 1  # the lower byte of it, in a frame: there is no key that needs both

# Why a connection is not read from at the moment.
_ANSWER, _OUTPUT, _MEMORY, _TURN = 1, 2, 4, 8

Parts: TypeAlias = list[Part]

ANONYMOUS = "User:ANONYMOUS"


def host_of(peer: str) -> str:
    """The address of a peer, which is told as `host:port`."""
    return peer.rpartition(":")[0].strip("[]")


class DeferredReply:
    """An answer that is not there yet. `may_go_on`: the next request of this connection may be served meanwhile.
    `holds_request`: the bytes of the request are still needed."""

    __slots__ = ("api_key", "began_ns", "future", "holds_request", "is_counted", "may_go_on")
    future: asyncio.Future[Parts | None] | asyncio.Future[None]
    # Set where it is the answer to one request, which is counted when it is there.
    api_key: int
    began_ns: int

    def __init__(
        self, answer: Awaitable[Parts | None], *, may_go_on: bool = False, holds_request: bool = False
    ) -> None:
        self.future = asyncio.ensure_future(answer)
        self.may_go_on = may_go_on
        self.holds_request = holds_request
        self.is_counted = False


class HeldReply(DeferredReply):
    """One whose bytes are known, but that may not leave before `leave` is done. If that fails, `taken` makes what is
    sent instead; without it the connection ends."""

    __slots__ = ("parts", "taken")

    def __init__(self, parts: Parts, leave: asyncio.Future[Any], taken: CountedReply | None = None) -> None:
        self.future = leave
        self.may_go_on = True
        self.holds_request = False
        self.is_counted = False
        self.parts = parts
        self.taken = taken


def all_of(commits: list[asyncio.Future[None]]) -> asyncio.Future[Any]:
    """Done when all are, and failed if one of them has."""
    if len(commits) == 1:
        return commits[0]
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(commits)

    def one_is_done(_: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if left or done.done():
            return
        errors = [asyncio.CancelledError() if one.cancelled() else one.exception() for one in commits]
        error = next(filter(None, errors), None)
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    for commit in commits:
        commit.add_done_callback(one_is_done)
    return done


class PromisedReply(DeferredReply):
    """One that is kept from a callback of the loop, and sent in that callback: a future would take a turn more. The
    future is for its other ends: it failed, or its connection is gone."""

    __slots__ = ("keep",)
    keep: Callable[[Parts], None]  # the connection's, before it goes on

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop().create_future())

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


Answer: TypeAlias = Parts | DeferredReply | None


class CloseConnection(Exception):
    """The peer broke the protocol in a way that has no answer: its connection is closed, the others go on."""


class _Slot:
    __slots__ = ("blocks", "future", "later", "parts", "request_bytes", "taken")

    def __init__(
        self,
        parts: Parts | None,
        future: asyncio.Future[Parts | None] | asyncio.Future[None] | None,
        blocks: bool,
        taken: CountedReply | None = None,
        later: DeferredReply | None = None,
    ) -> None:
        self.later = later
        self.parts = parts  # known before the future is done, of an answer that is `HeldReply`
        self.future = future
        self.taken = taken
        self.blocks = blocks
        self.request_bytes = 0

    @property
    def may_leave(self) -> bool:
        """Whether it waits for nothing more. What one flush has made durable leaves together, in one call."""
        future = self.future
        return future is None or (
            self.parts is not None and future.done() and not future.cancelled() and future.exception() is None
        )


class ServedConnection(Receiving):
    """A client's connection. Also the Receiver of its Link."""

    def __init__(
        self,
        server: Server,
        link: Link,
        number: int,
        listener: str,
        principal: str = ANONYMOUS,
        login: Any = None,
    ) -> None:
        """With a `login`, nothing but that is served until `logged_in` is called."""
        self.link = link
        self.number = number
        self.listener = listener
        self.principal = principal
        self.host = host_of(link.peer)
        self.login = login
        self.is_authenticated = login is None
        self._login_timer: asyncio.TimerHandle | None = None
        self.was_active = False  # since the last sweep
        self.idle_sweeps = -1  # it came between two sweeps
        self.is_open = True
        # A quicker dispatch for requests like its last one, if there is one; what that does not answer is for dispatch.
        self.short_way: Callable[[ServedConnection, memoryview], Answer] | None = None
        self.lane = None
        # What its last request was like, for who makes a short way only when another like it has come.
        self.last_kind: object = None
        self._server = server
        self._dispatch = server.dispatch
        self._outstanding = deque[_Slot]()
        self._paused_for = 0
        self._held = bytearray()
        self._shared = server.shared_buffer
        self._most_bytes = 4 + server.limits.frame_bytes
        self._frame = None
        self._frame_bytes = 0
        self._room_bytes = 0  # of the frame that may come, as it is paid for
        self._filled = 0
        self._paid_bytes = 0
        self._unread_bytes = 0  # of answers, as they are counted
        self._turn = 0  # in the line for memory
        self._waiter: Waiter | None = None
        self._moved_bytes = 0  # came for frames that are not whole, or was read by the peer
        self._last_look: tuple[int, int] | None = None  # what had moved, and was not sent
        self._looks_without = 0

    @property
    def peer(self) -> str:
        return self.link.peer

    # -- its login

    def begin_login(self, within_s: float) -> None:
        self._login_timer = asyncio.get_running_loop().call_later(within_s, self._refuse, "it has not logged in")

    def logged_in(self, principal: str, session_ms: int = 0) -> None:
        """What it asks for is served from now on; after `session_ms`, if that is not 0, nothing but another login."""
        self.principal = principal
        self.is_authenticated = True
        self._stop_login_timer()
        if session_ms > 0:
            self._login_timer = asyncio.get_running_loop().call_later(session_ms / 1000, self._end_session)

    def _end_session(self) -> None:
        self.is_authenticated = False
        self.lane = None
        self.short_way = None

    def close_soon(self, after_s: float) -> None:
        """It may read its last answer until then."""
        self.is_authenticated = False
        self._stop_login_timer()
        self._login_timer = asyncio.get_running_loop().call_later(after_s, self.close)

    def _stop_login_timer(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None

    def is_shared(self, frame: memoryview) -> bool:
        """Whether the request lies where all connections read to: then it is there until the next read of any."""
        return frame.obj is self._shared.buffer.obj

    # -- reading

    def _rest_of_frame(self) -> memoryview:
        assert self._frame is not None
        return self._frame[self._filled : self._room_bytes]

    def _received(self, count: int) -> bytes | None:
        if self._frame is not None:
            self._filled += count
            self._moved_bytes += count
            self._continue_frame()
            return None
        buffer = self._shared.buffer
        if self.is_authenticated and self.is_open and not self._held and not self._paused_for:
            (length,) = _LENGTH.unpack_from(buffer)
            if length == count - 4 and length >= _SMALLEST_FRAME_BYTES and count <= self._most_bytes:
                return self.serve_alone(buffer[4:count])
        data = buffer[:count]
        if self._held:
            joined = self._take_held()
            joined += data
            data = memoryview(joined)
        self._consume(data)
        return None

    def _consume(self, data: memoryview) -> None:
        """Serves every whole frame; keeps what is left for later."""
        position, end, served = 0, len(data), 0
        while end - position >= 4 and self.is_open and not self._paused_for:
            if served == _MOST_PER_TURN:
                self._pause(_TURN)
                asyncio.get_running_loop().call_soon(self._unpause, _TURN)
                break
            (length,) = _LENGTH.unpack_from(data, position)
            if not _SMALLEST_FRAME_BYTES <= length <= self._server.frame_limit_bytes(self):
                self._refuse(f"a frame of {length} bytes")
                return
            start = position + 4
            if end - start < length:
                self._begin_frame(length, data[start:])
                return
            self._serve(data[start : start + length], 0)
            position = start + length
            served += 1
        if position < end and self.is_open:
            self._hold(data[position:])

    def _hold(self, data: memoryview) -> None:
        """Keeps what has come and cannot be looked at yet: at most one read of it, for no more is read meanwhile."""
        self._held = bytearray(data)
        self._pay_for_what_came(len(data))

    def _take_held(self) -> bytearray:
        held, self._held = self._held, bytearray()
        self._give_back(len(held))
        return held

    def _pay_for_what_came(self, size_bytes: int) -> None:
        """It is there already, so it is counted also when the budget is full; when that is overdrawn, the peer goes."""
        self._server.budget.take_anyway(size_bytes)
        self._add_paid(size_bytes)
        if self._server.budget.is_overdrawn:
            self._refuse("this node has no memory left for requests")

    def _pay(self, size_bytes: int) -> bool:
        budget = self._server.budget
        if not budget.take(size_bytes):
            if self._frame_bytes > budget.small_bytes or budget.is_overdrawn:
                return False
            budget.take_anyway(size_bytes)
        self._add_paid(size_bytes)
        return True

    def _add_paid(self, size_bytes: int) -> None:
        self._paid_bytes += size_bytes
        self._server.holding[self] = None

    def _give_back(self, size_bytes: int) -> None:
        """Of what is counted for bytes that have come, but not for requests that are being served."""
        self._paid_bytes -= size_bytes
        self._forget_if_it_holds_nothing()
        self._server.budget.give_back(size_bytes)

    def _forget_if_it_holds_nothing(self) -> None:
        if not self.held_bytes:
            self._server.holding.pop(self, None)

    def _begin_frame(self, length: int, first: memoryview) -> None:
        """A frame that is not whole. Its first bytes are in a buffer that others need: they are moved at any cost."""
        self._frame_bytes = length
        self._turn = self._server.budget.turn()
        room = _room(length, len(first))
        if not self._pay(size_of(room)):
            room = len(first)
            self._pay_for_what_came(size_of(room))
            if not self.is_open:
                return
        self._frame = self._server.buffers.take(room)
        self._room_bytes = room
        self._filled = len(first)
        self._frame[: self._filled] = first
        self._continue_frame()

    def _continue_frame(self) -> None:
        """A buffer that is full either holds the frame, or grows with what has really come."""
        if self._frame is None or self._filled < self._room_bytes:
            return
        if self._filled == self._frame_bytes:
            self._serve_frame(self._frame)
            return
        more = self._more_bytes()
        if self._pay(more):
            self._grow()
            return
        self._pause(_MEMORY)
        waiter = self._server.budget.take_later(
            more, self._memory_granted, turn=self._turn, holds_bytes=self._paid_bytes
        )
        if waiter.is_waiting:
            self._waiter = waiter

    def _more_bytes(self) -> int:
        """To be paid for the next room."""
        room = _room(self._frame_bytes, self._filled)
        return size_of(room) - size_of(self._room_bytes)

    def _memory_granted(self) -> None:
        self._waiter = None
        self._add_paid(self._more_bytes())
        self._grow()
        self._unpause(_MEMORY)

    def _grow(self) -> None:
        """Makes the room for which `_more_bytes` was paid."""
        frame = self._frame
        assert frame is not None
        self._room_bytes = _room(self._frame_bytes, self._filled)
        if self._room_bytes > len(frame):
            is_large = self._room_bytes > LARGEST_KEPT_BYTES
            larger = self._server.buffers.take(self._frame_bytes if is_large else self._room_bytes)
            larger[: self._filled] = frame[: self._filled]
            self._frame = larger
            self._server.buffers.give_back(frame)

    def _serve_frame(self, frame: memoryview) -> None:
        self._frame = None
        paid_bytes, self._paid_bytes = self._paid_bytes, 0
        self._forget_if_it_holds_nothing()
        if not self._serve(frame, paid_bytes):
            self._server.buffers.give_back(frame)

    def comes_on(self) -> bool:
        """Asked every second while others wait for memory: whether it is worth the memory that it holds.

        It is not if for some time it has brought too little of its frame, and read too little of what it is to be sent.
        """
        unsent_bytes = self.link.unsent_bytes
        last, self._last_look = self._last_look, (self._moved_bytes, unsent_bytes)
        if last is None or self._waits_for_us:
            self._looks_without = 0
            return True
        moved = self._moved_bytes - last[0] + max(0, last[1] - unsent_bytes)
        self._looks_without = 0 if moved * _LEAST_PART_PER_LOOK >= self.held_bytes else self._looks_without + 1
        return self._looks_without < _MOST_LOOKS_WITHOUT

    @property
    def _waits_for_us(self) -> bool:
        """Whether it is not its peer's fault that nothing moves. Who sends much behind a request that may be answered
        after minutes, as a fetch may, has chosen so."""
        if self._paused_for & _ANSWER and self._outstanding[-1].blocks:
            return len(self._held) < _SMALLEST_BUFFER_BYTES
        return bool(self._paused_for & ~_OUTPUT)

    @property
    def held_bytes(self) -> int:
        """What it holds of the budget: for what has come and is not served yet, and for answers that are not read."""
        return self._paid_bytes + self._unread_bytes

    def give_up(self) -> None:
        what = "what it has sent is not used"
        if self._frame is not None:
            what = f"its frame of {self._frame_bytes} bytes stopped"
        elif self._unread_bytes:
            what = f"it does not read {self.link.unsent_bytes} bytes of answers"
        self._refuse(f"others wait for memory, and {what}")

    # -- serving

    def serve_alone(self, frame: memoryview) -> bytes | None:
        """A request that came whole and with nothing behind it; what it returns is to be sent at once."""
        answer = self._answer_to(frame)
        if type(answer) is list and len(answer) == 1 and not self._outstanding and not self.link.unsent_bytes:
            (only,) = answer
            if type(only) is bytes:
                return only
        self._take(answer, 0)
        return None

    def answer_when(
        self, commits: list[asyncio.Future[None]], answer: bytes, taken: CountedReply | None = None
    ) -> bytes | None:
        """An answer that is to be sent at once is returned; any other is sent in its turn. `taken` knows what to answer
        when a commit has failed."""
        if not commits and not self._outstanding:
            self._count(taken)
            return answer
        self.send_in_turn(commits, answer, taken)
        return None

    def send_in_turn(
        self, commits: list[asyncio.Future[None]], answer: bytes | None, taken: CountedReply | None = None
    ) -> None:
        if answer is None:
            return
        if not commits:
            self._count(taken)
            self._take([answer], 0)
            return
        self._take(HeldReply([answer], all_of(commits), taken), 0)

    def _count(self, taken: CountedReply | None) -> None:
        if taken is not None:
            taken.answered(self._server.requests.now_ns())

    def _serve(self, frame: memoryview, budget_bytes: int) -> bool:
        """Whether the bytes of the request are still needed when this returns."""
        return self._take(self._answer_to(frame), budget_bytes)

    def _answer_to(self, frame: memoryview) -> Answer:
        counts = self._server.requests
        began_ns = counts.now_ns()
        try:
            answer = None if self.short_way is None else self.short_way(self, frame)
            if answer is None:
                answer = self._dispatch(self, frame)
            if isinstance(answer, DeferredReply):
                answer.api_key, answer.began_ns, answer.is_counted = frame[_API_KEY_AT], began_ns, True
            else:
                counts.answered(frame[_API_KEY_AT], counts.now_ns() - began_ns)
            return answer
        except CloseConnection as error:
            self._refuse(str(error))
        except Exception as error:
            self.not_served(error)
        return None

    def not_served(self, error: BaseException) -> None:
        self._server.failed(self, error)
        self._refuse("its request could not be served")

    def _take(self, answer: Answer, budget_bytes: int) -> bool:
        """Sends an answer when its turn comes. Whether the bytes of its request are still needed."""
        is_held = False
        if isinstance(answer, DeferredReply):
            if type(answer) is HeldReply:
                slot = _Slot(answer.parts, answer.future, False, answer.taken, answer)
            else:
                slot = _Slot(None, answer.future, not answer.may_go_on, None, answer)
            is_held = answer.holds_request
            if is_held:
                slot.request_bytes, budget_bytes = budget_bytes, 0
            self._outstanding.append(slot)
            if slot.blocks or len(self._outstanding) >= _MOST_OUTSTANDING:
                self._pause(_ANSWER)
            answer.future.add_done_callback(lambda _: self._answered(slot))
            if type(answer) is PromisedReply:
                answer.keep = partial(self._deliver, slot)
        elif answer is not None:
            if self._outstanding:
                # It waits for its turn, and counts like those that wait for something else.
                self._outstanding.append(_Slot(answer, None, blocks=False))
                if len(self._outstanding) >= _MOST_OUTSTANDING:
                    self._pause(_ANSWER)
            else:
                self._send(answer)
        if budget_bytes:
            self._server.budget.give_back(budget_bytes)
        return is_held

    def _answered(self, slot: _Slot) -> None:
        self._server.budget.give_back(slot.request_bytes)
        future = slot.future
        if future is None or not self.is_open:
            if future is not None and not future.cancelled() and future.exception() is None:
                _release(future.result())
            return
        if future.cancelled():
            self._refuse("its request was given up")
            return
        error = future.exception()
        if error is not None and slot.taken is not None:
            self._deliver_otherwise(slot, slot.taken)
            return
        if isinstance(error, CloseConnection) or (error is not None and slot.parts is not None):
            self._refuse(str(error))
            return
        if error is not None:
            self.not_served(error)
            return
        self._deliver(slot, future.result() if slot.parts is None else slot.parts)

    def _deliver_otherwise(self, slot: _Slot, taken: CountedReply) -> None:
        try:
            answer = taken.after_failure()
        except Exception as error:
            self.not_served(error)
        else:
            self._deliver(slot, [answer])

    def _deliver(self, slot: _Slot, parts: Parts | None) -> None:
        """An answer is there: it leaves when those before it have left."""
        if not self.is_open:
            _release(parts)
            return
        slot.parts = parts
        slot.future = None
        leaving: Parts = []
        counts = self._server.requests
        now_ns = counts.now_ns()
        while self._outstanding and self._outstanding[0].may_leave:
            first = self._outstanding.popleft()
            first.future = None
            leaving += first.parts or ()
            if first.taken is not None:
                first.taken.answered(now_ns)
            elif first.later is not None and first.later.is_counted:
                counts.answered(first.later.api_key, now_ns - first.later.began_ns)
        if leaving:
            self._send(leaving)
        last = self._outstanding[-1] if self._outstanding else None
        if last is None or not (last.blocks or len(self._outstanding) >= _MOST_OUTSTANDING):
            self._unpause(_ANSWER)

    def _send(self, parts: Parts) -> None:
        self.link.send(parts)
        unsent_bytes = self.link.unsent_bytes
        if unsent_bytes:
            self._count_unread(parts, unsent_bytes)
            if unsent_bytes > _MOST_UNSENT_BYTES:
                self._pause(_OUTPUT)

    def _count_unread(self, parts: Parts, unsent_bytes: int) -> None:
        """Answers that wait in memory for their peer are counted from when they are made until all of them are read."""
        in_memory = min(unsent_bytes, sum([len(part) for part in parts if type(part) is not FileRange]))
        if in_memory and self.is_open:
            self._server.budget.take_anyway(in_memory, Owner.ANSWER)
            self._unread_bytes += in_memory
            self._server.holding[self] = None

    def _no_longer_unread(self) -> None:
        if self._unread_bytes:
            size_bytes, self._unread_bytes = self._unread_bytes, 0
            self._forget_if_it_holds_nothing()
            self._server.budget.give_back(size_bytes, Owner.ANSWER)

    def drained(self) -> None:
        self.was_active = True
        self._no_longer_unread()
        self._unpause(_OUTPUT)

    # -- flow

    def _pause(self, reason: int) -> None:
        if not self._paused_for:
            self.link.pause_reading()
        self._paused_for |= reason

    def _unpause(self, reason: int) -> None:
        if not self._paused_for & reason:
            return
        self._paused_for &= ~reason
        if self._paused_for or not self.is_open:
            return
        if self._held and self._frame is None:
            self._consume(memoryview(self._take_held()))
        if not self._paused_for and self.is_open:
            self.link.resume_reading()

    @property
    def is_waiting(self) -> bool:
        """Whether the peer is waiting for us: such a connection is not idle."""
        return bool(self._outstanding or self._waiter is not None)

    @property
    def is_idle(self) -> bool:
        return not self.was_active and not self.is_waiting

    # -- ending

    def _refuse(self, why: str) -> None:
        self._server.complain("refuse", logging.INFO, "closing the connection of %s: %s", self.peer, why)
        self.close()

    def drop(self) -> None:
        """Ends the connection at once."""
        self._end()
        self.link.close()

    def close(self) -> None:
        """Ends the connection after what is already answered has been sent."""
        self._end()
        self.link.close_when_sent()

    def closed(self, reason: BaseException | None) -> None:
        """The link has ended, by the peer or by us."""
        self._end()
        self._server.forget(self)

    def _end(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self.lane = None
        self._stop_login_timer()
        self._held = bytearray()
        self._frame = None
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._server.budget.forget(waiter)
        self._no_longer_unread()
        self._give_back(self._paid_bytes)
        for slot in self._outstanding:
            if slot.future is not None:
                slot.future.cancel()
            _release(slot.parts)
        self._outstanding.clear()


def _room(length: int, filled: int) -> int:
    """How much of a frame of `length` bytes there is to be room for when so much of it has come."""
    if length <= LARGEST_KEPT_BYTES or filled * _GROWTH <= LARGEST_KEPT_BYTES:
        return min(length, max(_GROWTH * filled, _SMALLEST_BUFFER_BYTES))
    return min(length, max(LARGEST_KEPT_BYTES, filled + _STEP_BYTES))


def _release(parts: Parts | None) -> None:
    for part in parts or ():
        if type(part) is FileRange:
            part.release()
