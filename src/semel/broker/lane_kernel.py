# cython: language_level=3, boundscheck=False, wraparound=False
"""The fast path of a produce: requests that are like an earlier one of their connection, from bytes to answers.

A lane is made when the ordinary path has served a request of one batch without a refusal: for requests of the same
principal with the same bytes around their batch. It holds as long as its generation: a change of a permission, a
leader or a setting raises that number, and nothing else is asked for each request. A lane takes a request where it
lies and promises an answer; what all connections sent in one round is then written together, one call for each log
(`AppendRound`). A request that is not ordinary in any way is left to the ordinary path.
Rule: while a round has requests waiting, nothing else runs.
Compiled or plain Python, with the same results; indexes are checked here, because compiled code does not. C types stand
in the .pxd file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

from semel.log.errors import BrokenLog, Refused

if cython.compiled:
    from cython.cimports.semel.log.append_kernel import LogEnd, PendingAppend, address_of
    from cython.cimports.semel.log.ordinary_kernel import OrdinaryRules
    from cython.cimports.semel.log.row_kernel import number, put
    from cython.cimports.semel.metrics.counts_kernel import Times
    from cython.cimports.semel.replication.term_kernel import Generation
else:
    from semel.log.append_kernel import LogEnd, PendingAppend, address_of
    from semel.log.ordinary_kernel import OrdinaryRules
    from semel.log.row_kernel import number, put
    from semel.metrics.counts_kernel import Times
    from semel.replication.term_kernel import Generation

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from semel.replication.partition import Partition
    from semel.rpc.served import ServedConnection
    from semel.rpc.served_kernel import ReplyBatch

compiled: bool = cython.compiled

_FRAME_START = cython.declare(cython.longlong, 4)
_CORRELATION_AT = cython.declare(cython.longlong, 4)
_CORRELATION_END = cython.declare(cython.longlong, 8)
_LARGEST_LENGTH_BYTES = cython.declare(cython.longlong, 4)


@cython.final
@cython.cclass
class RequestForm:
    """What requests of one client for one partition look like around their batch."""

    prefix: bytes
    prefix_bytes: int
    has_compact_length: bool
    suffix_bytes: int

    def __init__(self, prefix: bytes, has_compact_length: bool, suffix_bytes: int) -> None:
        """`prefix` is the frame up to the length of the records, a compact one or an int32; the correlation id in it
        does not count. After the records come `suffix_bytes` zeros."""
        if len(prefix) < _CORRELATION_END or suffix_bytes < 0:
            raise ValueError(f"a frame does not begin with {prefix!r} and end with {suffix_bytes} bytes")
        self.prefix = prefix
        self.prefix_bytes = len(prefix)
        self.has_compact_length = has_compact_length
        self.suffix_bytes = suffix_bytes

    def batch_start(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, frame_end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Where the batch begins, if the frame looks like this; else -1."""
        at: cython.Py_ssize_t = start + self.prefix_bytes
        end: cython.Py_ssize_t = frame_end - self.suffix_bytes
        index: cython.Py_ssize_t
        length: cython.longlong = 0
        prefix: cython.p_const_uchar = self.prefix
        if end - at < _LARGEST_LENGTH_BYTES:
            return -1
        for index in range(_CORRELATION_AT):
            if data[start + index] != prefix[index]:
                return -1
        for index in range(_CORRELATION_END, self.prefix_bytes):
            if data[start + index] != prefix[index]:
                return -1
        for index in range(end, frame_end):
            if data[index] != 0:
                return -1
        if self.has_compact_length:
            for index in range(4):  # 28 bits hold the length of any batch that may be that long
                length |= cython.cast(cython.longlong, data[at] & 0x7F) << (7 * index)
                at += 1
                if data[at - 1] < 0x80:
                    break
            length -= 1
        else:
            length = number(data, at, 4)
            at += 4
        return at if length == end - at else -1


@cython.final
@cython.cclass
class ReplyForm:
    """The answer to a success, encoded once, with gaps."""

    form: bytearray
    base_at: int
    start_at: int

    def __init__(self, form: bytes, base_at: int, start_at: int) -> None:
        """Its correlation id is where that of every response is. Where its first offset stands, and where the log's;
        -1: it is not told."""
        if len(form) < _CORRELATION_END or not 0 <= base_at <= len(form) - 8 or not -1 <= start_at <= len(form) - 8:
            raise ValueError(f"no offsets can be put at {base_at} and {start_at} of {len(form)} bytes")
        self.form = bytearray(form)
        self.base_at = base_at
        self.start_at = start_at

    def to(self, correlation_id: cython.longlong, base_offset: cython.longlong, start_offset: cython.longlong) -> bytes:
        data: cython.p_uchar = self.form
        put(data, _CORRELATION_AT, correlation_id, 4)
        put(data, self.base_at, base_offset, 8)
        if self.start_at >= 0:
            put(data, self.start_at, start_offset, 8)
        return bytes(self.form)


@cython.final
@cython.cclass
class AppendRound:
    """The requests of one round over the connections, of all lanes."""

    waiting: list[PendingProduce]
    now_ms: int
    began_ns: int
    now_ns: Callable[[], int]
    times: Times

    def __init__(self, now_ns: Callable[[], int], times: Times) -> None:
        """`times`: of all produce requests of this node."""
        self.waiting = []
        self.began_ns = 0
        self.now_ns = now_ns
        self.times = times

    def begin(self, now_ms: cython.longlong) -> None:
        self.now_ms = now_ms
        self.began_ns = self.now_ns()

    def complete(self) -> None:
        """Writes them, one call for each log, and makes the answers. Then it tells who wants to know, has answers wait
        for their flush, and leaves what could not be written to the ordinary path."""
        waiting: list[PendingProduce] = self.waiting
        first_of_logs: list[PendingProduce] = []
        one: PendingProduce
        lane: ProduceLane
        answered: cython.longlong = 0
        self.waiting = []
        for one in waiting:
            lane = one.lane
            if lane.log.pending:
                first_of_logs.append(one)
                lane.write_pending()
            one.make(lane)
        for one in first_of_logs:
            lane = one.lane
            lane.tell(one)
        for one in waiting:
            if one.batch is not None:
                if not one.is_written:
                    one.batch.send_in_turn()
            elif not one.is_written:
                one.fall_back()
            else:
                lane = one.lane
                if lane.waits and one.answer is not None:
                    one.answer = one.connection.answer_when(one.commits_of([one]), one.answer, one)
                else:
                    answered += 1
        if answered:
            self.times.observe(self.now_ns() - self.began_ns, answered)


@cython.final
@cython.cclass
class PendingProduce(PendingAppend):
    """A request that a lane has taken, and its answer once that is made."""

    round: AppendRound
    lane: ProduceLane
    connection: ServedConnection
    frame_start: int
    frame_end: int
    correlation_id: int
    commit: asyncio.Future[None] | None  # what its answer waits for
    error: Exception | None  # why it could not be written
    answer: bytes | None
    is_made: bool
    batch: ReplyBatch | None  # of those that came in one read with it; None: it came alone
    began_ns: int

    def answered(self, now_ns: cython.longlong) -> None:
        if self.is_written:  # else the ordinary path has answered it, and counted it
            self.round.times.observe(now_ns - self.began_ns)

    def made(self) -> bytes | None:
        """The answer. None: the connection has been answered otherwise, or will be."""
        if not self.is_made:
            self.round.complete()
        return self.answer

    def commits_of(self, answers: list[PendingProduce]) -> list[asyncio.Future[None]]:
        """What has to be done before the answers to these, which came in one read, may leave."""
        one: PendingProduce
        lane: ProduceLane
        last: dict[Partition, PendingProduce] = {}
        commits: dict[Partition, asyncio.Future[None] | None] = {}
        if len(answers) == 1:
            one = answers[0]
            lane = one.lane
            if lane.waits and one.is_written:
                one.commit = lane.term.when_committed(one.last_offset, lane.timeout_ms)
            return [] if one.commit is None else [one.commit]
        for one in answers:
            lane = one.lane
            if lane.waits and one.is_written:
                last[lane.term] = one
        for term, one in last.items():
            lane = one.lane
            commits[term] = term.when_committed(one.last_offset, lane.timeout_ms)
        for one in answers:
            lane = one.lane
            if lane.waits and one.is_written:
                one.commit = commits[lane.term]
        return [commit for commit in commits.values() if commit is not None]

    def after_failure(self) -> bytes:
        """The answer, when one of those that it was to leave with is not committed."""
        lane: ProduceLane = self.lane
        error: BaseException | None = None
        if not self.is_written:
            return b""  # it was answered by the ordinary path
        if self.commit is not None and self.commit.done() and not self.commit.cancelled():
            error = self.commit.exception()
        if error is None:
            return lane.reply.to(self.correlation_id, self.base_offset, lane.log.start_offset)
        return lane.refuse(self.correlation_id, self.connection, error)

    def answer_or_fall_back(self) -> bytes | None:
        """The answer of one that is made; if it was not written, what the ordinary path has to say at once."""
        if not self.is_written:
            self.fall_back()
        return self.answer

    def make(self, lane: ProduceLane) -> None:
        self.is_made = True
        if self.is_written:
            self.correlation_id = number(self.data, self.frame_start + _CORRELATION_AT, 4)
            self.answer = lane.reply.to(self.correlation_id, self.base_offset, lane.log.start_offset)

    def fall_back(self) -> None:
        if isinstance(self.error, Refused):  # by the disk; the ordinary path has words for it
            self.answer = self.connection.serve_alone(self.buffer[self.frame_start : self.frame_end])
        elif self.error is not None:
            self.connection.not_served(self.error)


@cython.final
@cython.cclass
class ProduceLane:
    """Serves produce requests of one form."""

    round: AppendRound
    form: RequestForm
    reply: ReplyForm
    key: bytes
    term: Partition
    log: LogEnd
    rules: OrdinaryRules
    may_join: Callable[[int, int], bool] | None
    waits: bool
    timeout_ms: int
    refuse: Callable[[int, ServedConnection, BaseException], bytes]
    generation: Generation
    made_in: int
    siblings: dict[bytes, ProduceLane]
    buffer: memoryview

    def __init__(
        self,
        round: AppendRound,
        form: RequestForm,
        reply: ReplyForm,
        term: Partition,
        rules: OrdinaryRules,
        may_join: Callable[[int, int], bool] | None,
        waits: bool,
        timeout_ms: int,
        refuse: Callable[[int, ServedConnection, BaseException], bytes],
        generation: Generation,
        siblings: dict[bytes, ProduceLane],
    ) -> None:
        """`may_join(producer_id, producer_epoch)` is asked for each batch of a transactional producer. `waits`: whether
        its answers wait until what they tell is committed; for `timeout_ms` where that takes other nodes.
        `refuse(correlation_id, connection, error)` makes the answer when that fails. `siblings`: the lanes of the same
        principal, by the bytes of a request after its correlation id and before its records."""
        self.round = round
        self.form = form
        self.reply = reply
        self.key = form.prefix[_CORRELATION_END:]
        self.term = term
        self.log = term.log
        self.rules = rules
        self.may_join = may_join
        self.waits = waits
        self.timeout_ms = timeout_ms
        self.refuse = refuse
        self.generation = generation
        self.made_in = generation.number
        self.siblings = siblings
        self.clock = term.clock
        self.buffer = memoryview(b"")

    def is_over(self) -> bool:
        """Whether something has changed since, so that what it concluded may not hold any more."""
        return self.generation.number != self.made_in

    def take(
        self, connection: ServedConnection, buffer: memoryview, start: cython.Py_ssize_t, count: cython.Py_ssize_t
    ) -> PendingProduce | None:
        """A promise to answer `count` bytes of the buffer, if they are one whole frame of an ordinary request; it stays
        there until then. None: nothing was done."""
        if self.is_over():
            connection.lane = None
            return None
        if buffer is not self.buffer:  # it is the same one, always, and need not be asked for its memory each time
            self.data = buffer
            self.buffer = buffer
        data: cython.p_uchar = address_of(self.data)
        if count < _FRAME_START + _CORRELATION_END or start < 0 or count > len(self.data) - start:
            return None
        if number(data, start, 4) != count - _FRAME_START:
            return None
        if not self.waits and connection.has_outstanding:
            return None
        frame_start: cython.Py_ssize_t = start + _FRAME_START
        frame_end: cython.Py_ssize_t = start + count
        batch_start: cython.Py_ssize_t = self.form.batch_start(data, frame_start, frame_end)
        if batch_start < 0:
            return self.take_on_sibling(connection, buffer, start, count)
        if not self.round.waiting:
            self.round.begin(self.clock.wall_ms())
        one: PendingProduce = PendingProduce()
        if not self.rules.take(
            one,
            self.log,
            buffer,
            data,
            batch_start,
            frame_end - self.form.suffix_bytes - batch_start,
            self.term.leader_epoch,
            self.round.now_ms,
            self.may_join,
        ):
            return None
        one.round = self.round
        one.lane = self
        one.connection = connection
        one.frame_start = frame_start
        one.frame_end = frame_end
        one.answer = one.error = one.batch = one.commit = None
        one.is_made = False
        one.began_ns = self.round.began_ns
        self.round.waiting.append(one)
        return one

    def take_on_sibling(
        self, connection: ServedConnection, buffer: memoryview, start: cython.Py_ssize_t, count: cython.Py_ssize_t
    ) -> PendingProduce | None:
        """On the lane of such requests, if they have one: a connection may go from partition to partition."""
        begin: cython.Py_ssize_t = start + _FRAME_START + _CORRELATION_END
        end: cython.Py_ssize_t = start + _FRAME_START + self.form.prefix_bytes
        key: bytes = bytes(buffer[begin : min(end, start + count)])
        if key == self.key:  # it is not ordinary
            return None
        lane: ProduceLane | None = self.siblings.get(key)
        if lane is None:
            return None
        connection.lane = lane.take
        return lane.take(connection, buffer, start, count)

    def write_pending(self) -> None:
        """Also those that came by other lanes."""
        pending: list[PendingProduce] = self.log.pending  # type: ignore[assignment]  # only lanes leave them pending
        one: PendingProduce
        try:
            self.log.write_pending(self.term.leader_epoch, self.rules.index_interval_bytes)
        except Exception as error:
            for one in pending:
                one.error = error

    def tell(self, first: PendingProduce) -> None:
        """Of all that were written with it, or could not be."""
        try:
            if first.is_written:
                self.term.appended()
            elif isinstance(first.error, BrokenLog):
                self.term.on_broken(first.error)
        except Exception as error:
            first.connection.not_served(error)
