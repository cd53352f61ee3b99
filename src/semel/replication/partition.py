"""One partition on its leader: what may be written, what may be read, and who is waiting.

The high watermark is how far the partition may be read. With `flush.messages=1`, the default, it is the flushed
offset: nobody reads, and no producer with acks=all is told of, what a power cut could take back. Flushes are group
commits: one runs at a time, and the next one serves everything that came meanwhile. With any other value it is the end
of the log, as in Kafka, and flushes happen in the background. That is so for a partition of one replica; where there
are several, `replicas` says how far all of them are.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

from semel.config import TopicConfig
from semel.host.api import Arguments, Buffer, Clock, FileRange, Result
from semel.log.errors import BrokenLog, Refused
from semel.log.group_commit import GroupCommit
from semel.log.indexes import AbortedTransaction
from semel.log.log import Appended, Cold, Log, TimestampOffset
from semel.log.ordinary_kernel import OrdinaryRules
from semel.log.truncation import finish_cut_now
from semel.log.types import Epoch, Offset, ProducerId
from semel.log.validate import Validated, validated
from semel.records.batch import read_header
from semel.records.control import ControlType
from semel.replication.in_sync import Assignment
from semel.replication.replicas import LeaderContext, Replicas
from semel.replication.term_kernel import Generation, TermEnd
from semel.wire.errors import ErrorCode

logger = logging.getLogger("semel.replication")

NO_EPOCH = -1
ACKS_ALL = -1
UP_TO_HIGH_WATERMARK = -1
_NEVER_MS = 1 << 62


class Fetched(NamedTuple):
    """What a reader gets, with the offsets that it is told."""

    records: FileRange | Cold | None
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: list[AbortedTransaction] | None = None
    diverging: tuple[Epoch, Offset] | None = None


class FollowerFetch(NamedTuple):
    """What a follower asks of one partition."""

    node_id: int
    broker_epoch: int
    leader_epoch: Epoch
    offset: Offset
    last_fetched_epoch: Epoch
    log_start: Offset
    max_bytes: int


class Partition(TermEnd):
    """One term of leadership of a partition by this node. Another leader epoch is another object: who holds this one
    finds it closed, and lets go."""

    log: Log

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        leader_epoch: Epoch,
        clock: Clock,
        on_broken: Callable[[BaseException], None],
        *,
        generation: Generation | None = None,
        group_commit: GroupCommit | None = None,
        context: LeaderContext | None = None,
        assignment: Assignment | None = None,
        earlier: Partition | None = None,
    ) -> None:
        """`assignment` says where it has replicas; without one it has no other. `earlier` is the term before this one,
        if this node has led that, and nobody in between."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.clock = clock
        self.on_broken = on_broken
        self.waiting = deque()
        self.watchers = {}
        self.is_closed = False
        self._generation = generation or Generation()
        self.group_commit = group_commit or GroupCommit(log, on_broken)
        self.group_commit.told = self._flushed
        self._context = context
        # None: it has no other replica.
        self.replicas: Replicas | None = None
        self._rules = OrdinaryRules(log.config)
        finish_cut_now(log)  # which the term before may have begun, as a follower
        log.epochs.assign(leader_epoch, log.end_offset)
        log.on_start = self._begins_later
        if assignment is not None:
            self._become_replicated(assignment, None if earlier is None else earlier.replicas)
        self._follow_config()
        if self.replicas is not None:
            self.replicas.advance()

    def next_term(self, leader_epoch: Epoch, assignment: Assignment | None = None) -> Partition:
        """The same node leads on, in another epoch: this term ends for everyone who waits in it."""
        self.resign()
        return Partition(
            self.topic,
            self.topic_id,
            self.index,
            self.log,
            leader_epoch,
            self.clock,
            self.on_broken,
            generation=self._generation,
            group_commit=self.group_commit,
            context=self._context,
            assignment=assignment,
            earlier=self if leader_epoch == self.leader_epoch + 1 else None,
        )

    def follow_state(self, assignment: Assignment) -> None:
        """The metadata log names replicas or ISR of this term anew. Another leader epoch is another term."""
        if self.replicas is not None:
            self.replicas.follow(assignment)
            return
        self._become_replicated(assignment, None)
        if self.replicas is not None:
            self._follow_config()
            self.raise_generation()

    def _become_replicated(self, assignment: Assignment, earlier: Replicas | None) -> None:
        if self._context is not None and any(one != self._context.node_id for one in assignment.replicas):
            self.replicas = Replicas(self, self._context, assignment, earlier)

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The one that it lives in: to ask for it is a system call."""
        return asyncio.get_running_loop()

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self.log.config = config
        self._follow_config()
        self._generation.raise_it()
        self.appended()
        if self.replicas is not None:
            self.replicas.changed()

    def raise_generation(self) -> None:
        self._generation.raise_it()

    def _follow_config(self) -> None:
        config = self.log.config
        self.commits_at_append = config.flush_messages != 1 and self.replicas is None
        self.flushes_in_turns = self.group_commit.flushes_in_turns
        self._rules = OrdinaryRules(config)
        self._has_ordinary = config.compression_type in ("producer", "uncompressed") and not config.stamps_at_append

    # -- writing

    def validate(self, records: Buffer) -> Validated:
        """Judges what a producer sent, without looking at the log; raises Refused. May run in another thread."""
        return validated(records, self.log.config, self.clock.wall_ms())

    def append(self, batch: Validated, acks: int) -> Appended:
        """Writes a validated batch; raises Refused. `when_committed` tells when it is safe."""
        config = self.log.config
        if acks == ACKS_ALL:
            self._check_replicas()
        header = batch.header
        appended = self._append(self.log.append, batch.batch, header, self.leader_epoch, self.clock.wall_ms())
        if config.stamps_at_append and not appended.is_duplicate:
            appended = appended._replace(append_time_ms=header.max_timestamp)
        return appended

    def _lacks_replicas(self, acks: int) -> bool:
        return acks == ACKS_ALL and self.replicas is not None and not self.replicas.has_enough

    def _check_replicas(self) -> None:
        """What this node writes itself has to be on enough replicas, too."""
        if self.replicas is not None and not self.replicas.has_enough:
            raise self.replicas.too_few(ErrorCode.NOT_ENOUGH_REPLICAS)

    def rules_for(self, acks: int) -> OrdinaryRules | None:
        """What batches are like that can be written as they are. None: with the settings of this topic, none is."""
        return self._rules if self._has_ordinary and not self._lacks_replicas(acks) else None

    def append_ordinary(
        self, batch: memoryview, rules: OrdinaryRules, may_join: Callable[[ProducerId, Epoch], bool] | None = None
    ) -> Offset | None:
        """As `validate` and `append`, of an ordinary batch: its first offset. None: it is not one."""
        base_offset = self._write(rules.append, self.log, batch, self.leader_epoch, self.clock.wall_ms(), may_join)
        if base_offset is not None:
            self.appended()
        return base_offset

    def append_prepared(self, batch: bytearray) -> Appended:
        """Writes a batch that this node built itself."""
        self._check_replicas()
        now_ms = self.clock.wall_ms()
        return self._append(self.log.append, batch, read_header(batch), self.leader_epoch, now_ms)

    def append_record(self, key: bytes, value: bytes | None) -> Offset:
        """Writes a record of this node in a batch of its own, which nobody has to read again to know it."""
        self._check_replicas()
        offset = self._write(self.log.append_record, key, value, self.leader_epoch, self.clock.wall_ms())
        self.appended()
        return offset

    def append_marker(
        self,
        kind: ControlType,
        producer_id: ProducerId,
        producer_epoch: Epoch,
        coordinator_epoch: Epoch,
        *,
        bumps_epoch: bool,
    ) -> Appended:
        """Writes the end of a transaction; raises Refused when the marker comes too late."""
        self._check_replicas()
        return self._append(
            partial(self.log.append_marker, bumps_epoch=bumps_epoch),
            kind,
            producer_id,
            producer_epoch,
            coordinator_epoch,
            self.leader_epoch,
            self.clock.wall_ms(),
        )

    def _append(self, write: Callable[[*Arguments], Appended], *arguments: *Arguments) -> Appended:
        appended = self._write(write, *arguments)
        if not appended.is_duplicate:
            self.appended()
        return appended

    def _write(self, write: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """A broken log stops the node, whoever triggered the write."""
        try:
            return write(*arguments)
        except BrokenLog as broken:
            self.on_broken(broken)
            raise
        except Refused as refusal:
            if isinstance(refusal.__cause__, OSError):
                self._disk_refused(refusal.__cause__)
            raise

    def _disk_refused(self, error: OSError) -> None:
        """Tells of it, and watches for the next write that is taken."""
        log, end_offset = self.log, self.log.end_offset
        log.trouble.refused(log.directory, error, self._loop)

        def look() -> None:
            if self.is_closed or log.high_watermark > end_offset:
                self.unwatch(log.trouble)
                if not self.is_closed:
                    log.trouble.taken(self._loop)

        self.watch(log.trouble, look)

    # -- committing

    def flush_if_due(self) -> None:
        self.group_commit.flush_if_due()
        if self.replicas is not None:
            self.replicas.appended()

    def _flushed(self) -> None:
        if self.commits_at_append or self.is_closed:
            return
        if self.replicas is None:
            self.advance(self.log.flushed_offset)
        else:
            self.replicas.advance()

    def needs_commit(self, acks: int) -> bool:
        """Whether an answer may have to wait after the append."""
        return acks == ACKS_ALL and not self.commits_at_append

    def release_waiting(self) -> None:
        high_watermark, waiting = self.log.high_watermark, self.waiting
        if self.replicas is not None and not self.replicas.may_have_enough:
            while waiting and waiting[0][0] < high_watermark:
                _refuse(waiting.popleft()[2], self.replicas.too_few(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        while waiting and waiting[0][0] < high_watermark:
            future = waiting.popleft()[2]
            if not future.done():
                future.set_result(None)

    def when_committed(self, last_offset: Offset, timeout_ms: int | None = None) -> asyncio.Future[None] | None:
        """None when everything up to `last_offset` is committed; otherwise a future of it, which may be Refused.

        The timeout is for other replicas: a flush of this node is waited for as long as it takes."""
        if last_offset < self.log.high_watermark:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        until_ms = _NEVER_MS
        if self.replicas is not None and timeout_ms is not None:
            until_ms = self.clock.monotonic_ms() + timeout_ms
            self.replicas.note_waiting()
        waiting = self.waiting
        if not waiting or waiting[-1][0] <= last_offset:
            waiting.append((last_offset, until_ms, future))
        else:
            # A duplicate waits for an earlier offset than those that came after it.
            self.waiting = deque(sorted([*waiting, (last_offset, until_ms, future)], key=lambda item: item[0]))
        return future

    def expire_waiting(self, now_ms: int) -> bool:
        """Tells those whose time is up: it is written, and may be committed later. Whether others wait on."""
        if any(until_ms <= now_ms for _, until_ms, _ in self.waiting):
            left: deque[tuple[Offset, int, asyncio.Future[None]]] = deque()
            for item in self.waiting:
                if item[1] > now_ms:
                    left.append(item)
                else:
                    _refuse(item[2], Refused(ErrorCode.REQUEST_TIMED_OUT, "not all in-sync replicas have it yet"))
            self.waiting = left
        return bool(self.waiting)

    # -- reading

    def check_epoch(self, epoch: Epoch) -> None:
        """Refuses a client whose idea of this partition's leader is older or newer than ours (KIP-320)."""
        if epoch == NO_EPOCH or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is over, it is {self.leader_epoch} now")
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here yet")

    def fetch(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        read_committed: bool,
        at_least_one: bool,
        last_fetched_epoch: Epoch = NO_EPOCH,
        warmed: bool = False,
    ) -> Fetched:
        """The batches from `offset` that this reader may see, as a file range."""
        log = self.log
        high_watermark = log.high_watermark
        stable = log.last_stable_offset
        if last_fetched_epoch != NO_EPOCH:
            diverging = self._diverging(offset, last_fetched_epoch)
            if diverging is not None:
                return Fetched(None, high_watermark, stable, log.start_offset, diverging=diverging)
        up_to = stable if read_committed else high_watermark
        records = log.read(offset, max_bytes, up_to, at_least_one=at_least_one, warmed=warmed)
        aborted: list[AbortedTransaction] | None = None
        if read_committed:
            aborted = log.aborted_between(offset, records) if isinstance(records, FileRange) else []
        return Fetched(records, high_watermark, stable, log.start_offset, aborted)

    def fetch_as_replica(
        self, asked: FollowerFetch, *, at_least_one: bool, counts: bool, warmed: bool = False
    ) -> Fetched:
        """The batches from an offset to the end of the log, for a follower; the order of checks is Kafka's.

        `counts`: the follower is where it says. That is so once for each request, not when it is tried again."""
        log, replicas, offset = self.log, self.replicas, asked.offset
        leader_end = log.end_offset  # before the records are read, or under load nobody would ever have caught up
        self.check_epoch(asked.leader_epoch)
        if replicas is None or asked.node_id not in replicas.in_sync.replicas:
            # What is known here of its replicas may be old: a new one is to come again, not to give up.
            has_epoch = asked.leader_epoch != NO_EPOCH
            raise Refused(
                ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"node {asked.node_id} has no replica of this partition, as far as is known here",
            )
        if asked.last_fetched_epoch != NO_EPOCH:
            diverging = self._diverging(offset, asked.last_fetched_epoch)
            if diverging is not None:
                stable = log.last_stable_offset
                return Fetched(None, log.high_watermark, stable, log.start_offset, diverging=diverging)
        records = log.read(offset, asked.max_bytes, leader_end, at_least_one=at_least_one, warmed=warmed)
        if counts:
            try:
                replicas.note_fetch(asked.node_id, asked.broker_epoch, offset, asked.log_start, leader_end)
            except Refused:
                if isinstance(records, FileRange):
                    records.release()
                raise
        return Fetched(records, log.high_watermark, log.last_stable_offset, log.start_offset)

    def _diverging(self, offset: Offset, last_fetched_epoch: Epoch) -> tuple[Epoch, Offset] | None:
        """Where the reader's log and ours part, if what it has read is not what we have (KIP-595)."""
        epoch, end_offset = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.end_offset)
        if end_offset < 0:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch} is not known here")
        if offset < self.log.start_offset:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"the log begins at offset {self.log.start_offset}")
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None

    def watch(self, watcher: object, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever there is more to read, the log begins later, or the partition is closed."""
        self.watchers[watcher] = wake

    def unwatch(self, watcher: object) -> None:
        self.watchers.pop(watcher, None)

    def watch_end(self, watcher: object, wake: Callable[[], None]) -> None:
        """As `watch`, for a follower: of every append, and of what the in-sync replicas are."""
        (self.watchers if self.replicas is None else self.replicas.end_watchers)[watcher] = wake

    def unwatch_end(self, watcher: object) -> None:
        if self.replicas is not None:
            self.replicas.end_watchers.pop(watcher, None)

    def wake_watchers(self) -> None:
        for wake in list(self.watchers.values()):
            wake()

    def _begins_later(self) -> None:
        self.wake_watchers()
        if self.replicas is not None:
            self.replicas.wake_end_watchers()

    @property
    def knows_end(self) -> bool:
        """Whether the high watermark is at least where this leader began: before that it may be an old one, and what it
        says is the end may have been read by others already."""
        replicas = self.replicas
        return replicas is None or self.log.high_watermark >= replicas.in_sync.epoch_start

    def offset_for_timestamp(self, timestamp_ms: int, up_to: Offset) -> TimestampOffset | None:
        found = self.log.offset_for_timestamp(timestamp_ms)
        return found if found is not None and found.offset < up_to else None

    def epoch_end_offset(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    # -- cutting

    def delete_before(self, offset: Offset) -> Offset:
        """Takes records away from the front; returns where the log begins now. Raises Refused."""
        log = self.log
        if not log.config.deletes:
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"cleanup.policy of {self.topic!r} has no 'delete': its records cannot be deleted by offset",
            )
        until = log.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
        if not 0 <= until <= log.high_watermark:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records can be deleted up to the high watermark {log.high_watermark}, not to {offset}",
            )
        log.advance_start(until)
        logger.debug("%s: begins at offset %d, as DeleteRecords asked", log.directory, log.start_offset)
        return log.start_offset

    # -- ending

    def resign(self) -> None:
        """Another node leads now. What was written is still flushed."""
        self._end()

    async def close(self) -> None:
        """A clean stop: waits for the flush that is under way."""
        self.abandon()
        await self.group_commit.when_over()

    def abandon(self) -> None:
        """The partition is served here no longer."""
        self.group_commit.stop()
        self._end()

    def _end(self) -> None:
        """The term is over: everyone who waits is told to look for the leader again."""
        self.is_closed = True
        self._generation.raise_it()
        while self.waiting:
            _refuse(self.waiting.popleft()[2], Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is closed"))
        self.wake_watchers()
        if self.replicas is not None:
            self.replicas.end()


def _refuse(future: asyncio.Future[None], refusal: Refused) -> None:
    if not future.done():
        future.set_exception(refusal)
        future.exception()  # whoever waited may have gone, and then it is no error that nobody hears of it
