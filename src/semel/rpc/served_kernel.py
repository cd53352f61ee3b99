# cython: language_level=3
"""What every request of a connection passes through, compiled or plain Python: `served` has all the rest. C types stand
in the .pxd file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Callable

    from semel.host.api import LaterReply, Link

compiled: bool = cython.compiled


class AfterFailure(Protocol):
    """What has an answer also when the records that it tells of could not be committed."""

    def after_failure(self) -> bytes: ...


class CountedReply(AfterFailure, Protocol):
    """The answer to requests that are counted when it is there."""

    def answered(self, now_ns: int) -> None:
        """Called once."""


class Taken(CountedReply, Protocol):
    """A request that a lane has taken, with those that came in one read."""

    is_made: bool
    batch: ReplyBatch | None

    def made(self) -> bytes | None: ...

    def commits_of(self, answers: list[Any]) -> list[asyncio.Future[None]]:
        """What has to be done before the answers to these may leave."""

    def answer_or_fall_back(self) -> bytes | None: ...


class Answering(Protocol):
    """A connection, as its answers see it."""

    def answer_when(
        self, commits: list[asyncio.Future[None]], answer: bytes, taken: CountedReply | None = None
    ) -> bytes | None: ...

    def send_in_turn(
        self, commits: list[asyncio.Future[None]], answer: bytes | None, taken: CountedReply | None = None
    ) -> None: ...


# A request that waits in the shared buffer takes so many bytes of it or a multiple; not a power of two, or the first
# bytes of all of them would have the same few places in the processor's cache.
_PLACE_BYTES = cython.declare(cython.Py_ssize_t, 1024 + 64)
_LENGTH_BYTES = cython.declare(cython.Py_ssize_t, 4)
# Requests of one read that are answered together; what comes behind them has its turn after others.
_MOST_TOGETHER = cython.declare(cython.Py_ssize_t, 64)


@cython.final
@cython.cclass
class SharedBuffer:
    """Where all connections of a server read to. What is read is served, or moved, before the next read of any, but for
    requests that are answered together: these stay where they are until then."""

    buffer: memoryview
    start: int  # of what is read next, or was last
    _places: list[memoryview]
    _place: int
    _waiting: list[LaterReply]

    def __init__(self, size_bytes: cython.Py_ssize_t) -> None:
        self.buffer = memoryview(bytearray(size_bytes))
        # No later one is read into, so that there is always room for what a connection has to say.
        self._places = [self.buffer[start:] for start in range(0, size_bytes // 2, _PLACE_BYTES)]
        self._place = self.start = 0
        self._waiting = []

    def free(self) -> memoryview:
        if self._waiting and self._waiting[len(self._waiting) - 1].is_made:  # and so are those before it
            self._waiting.clear()
            self._place = self.start = 0
        return self._places[self._place]

    def keep(self, answer: LaterReply, count: cython.Py_ssize_t) -> None:
        """What was read is needed until its answer is made."""
        self._waiting.append(answer)
        self._place += count // _PLACE_BYTES + 1
        self.start = self._place * _PLACE_BYTES
        if self._place >= len(self._places):
            self.settle()
        return

    def settle(self) -> None:
        """Has the answers made that wait for it: nothing is needed any more."""
        if self._waiting:
            waiting: list[LaterReply] = self._waiting
            self._waiting = []
            for answer in waiting:
                answer.made()
        self._place = self.start = 0
        return

    def move_to_front(self, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> None:
        if start > 0:
            self.buffer[:count] = self.buffer[start : start + count]
        return


@cython.final
@cython.cclass
class ReplyBatch:
    """The later answers to requests that came in one read, as one."""

    connection: Answering
    answers: list[Taken]
    answer: bytes | None
    is_made: bool

    def __init__(self, connection: Answering, answers: list[Taken]) -> None:
        self.connection = connection
        self.answers = answers
        self.answer = None
        self.is_made = False
        for one in answers:
            one.batch = self

    def made(self) -> bytes | None:
        if not self.is_made:
            parts: list[bytes | None] = [one.made() for one in self.answers]
            if not self.is_made:  # else one of them took the ordinary path
                self.is_made = True
                commits: list[asyncio.Future[None]] = self.answers[0].commits_of(self.answers)
                self.answer = self.connection.answer_when(
                    commits, b"".join([part for part in parts if part is not None]), self
                )
        return self.answer

    def answered(self, now_ns: cython.longlong) -> None:
        for one in self.answers:
            one.answered(now_ns)

    def after_failure(self) -> bytes:
        return b"".join([one.after_failure() for one in self.answers])

    def send_in_turn(self) -> None:
        """Some can only be answered by the ordinary path, perhaps not at once: those behind them wait for that."""
        if not self.is_made:
            self.is_made = True
            for one in self.answers:
                self.connection.send_in_turn(one.commits_of([one]), one.answer_or_fall_back(), one)


@cython.cclass
class Receiving:
    """Asks the lane of a connection first. Whatever it does not answer goes the longer way."""

    # Its `unsent_bytes` count what the peer has not read.
    link: Link
    # `lane(connection, buffer, start, count)` makes a later answer to a whole request in the buffer, or has None: it is
    # for the ordinary path, as is all that could overtake what `has_outstanding`. Until that answer is made it is the
    # only one that knows of the request.
    lane: Callable[[Any, memoryview, int, int], Taken | None] | None
    principal: str
    was_active: bool
    _shared: SharedBuffer
    # A frame that did not come in one read, what came before it was known to be one, and answers that are not sent yet.
    _frame: memoryview | None
    _held: bytearray
    _outstanding: deque[Any]
    _most_bytes: int

    def _rest_of_frame(self) -> memoryview:
        raise NotImplementedError

    def _received(self, count: int) -> bytes | None:
        """Serves what has come by the ordinary path."""
        raise NotImplementedError

    def not_served(self, error: BaseException) -> None:
        raise NotImplementedError

    def answer_when(
        self, commits: list[asyncio.Future[None]], answer: bytes, taken: CountedReply | None = None
    ) -> bytes | None:
        raise NotImplementedError

    def send_in_turn(
        self, commits: list[asyncio.Future[None]], answer: bytes | None, taken: CountedReply | None = None
    ) -> None:
        raise NotImplementedError

    @property
    def has_outstanding(self) -> bool:
        return bool(self._outstanding)

    def get_buffer(self) -> memoryview:
        return self._shared.free() if self._frame is None else self._rest_of_frame()

    def received(self, count: cython.Py_ssize_t) -> bytes | LaterReply | None:
        shared: SharedBuffer = self._shared
        start: cython.Py_ssize_t = shared.start
        taken: cython.Py_ssize_t = 0
        self.was_active = True
        if self.lane is not None and self._frame is None and not self._held and not self.link.unsent_bytes:
            answers: list[Taken] = []
            answer: LaterReply | None
            try:
                answer = self.lane(self, shared.buffer, start, count) if count <= self._most_bytes else None
                if answer is None:
                    taken = self.gather(answers, start, count)
                    if taken == count:
                        answer = ReplyBatch(self, answers)
            except Exception as error:
                self.send_made(answers)
                self.not_served(error)
                return None
            if answer is not None:
                shared.keep(answer, count)
                return answer
            self.send_made(answers)
        shared.settle()
        if self._frame is None:
            shared.move_to_front(start + taken, count - taken)
        return self._received(count - taken)

    def gather(self, answers: list, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Asks for answers to the first of several requests, as long as there are any; how many bytes these are."""
        buffer: memoryview = self._shared.buffer
        at: cython.Py_ssize_t = start
        end: cython.Py_ssize_t = start + count
        size: cython.Py_ssize_t
        while end - at > _LENGTH_BYTES and len(answers) < _MOST_TOGETHER and self.lane is not None:
            size = _LENGTH_BYTES + int.from_bytes(buffer[at : at + _LENGTH_BYTES], "big")
            if size > end - at or size > self._most_bytes or size == count:  # it was asked for that one
                break
            one = self.lane(self, buffer, at, size)
            if one is None:
                break
            answers.append(one)
            at += size
        return at - start

    def send_made(self, answers: list) -> None:
        """Before anything else is done for this connection, and while their requests are where they were read."""
        if answers:
            self.send_in_turn([], ReplyBatch(self, answers).made())
        return
