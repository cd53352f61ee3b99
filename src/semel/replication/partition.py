"""One partition on its leader: what may be written, what may be read, and who is waiting.

The high watermark is how far the partition may be read. With `flush.messages=1`, the default, it is the flushed
offset: nobody reads, and no producer with acks=all is told of, what a power cut could take back. Flushes are group
commits: one runs at a time, and the next one serves everything that came meanwhile. With any other value it is the end
of the log, as in Kafka, and flushes happen in the background.
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
from semel.log.indexes import AbortedTransaction
from semel.log.log import Appended, Cold, Log, TimestampOffset
from semel.log.ordinary_kernel import OrdinaryRules
from semel.log.types import Epoch, Offset, ProducerId
from semel.log.validate import Validated, validated
from semel.records.batch import read_header
from semel.records.control import ControlType
from semel.replication.group_commit import GroupCommit
from semel.replication.term_kernel import Generation, TermEnd
from semel.wire.errors import ErrorCode

logger = logging.getLogger("semel.replication")

NO_EPOCH = -1
UP_TO_HIGH_WATERMARK = -1


class Fetched(NamedTuple):
    """What a reader gets, with the offsets that it is told."""

    records: FileRange | Cold | None
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: list[AbortedTransaction] | None = None
    diverging: tuple[Epoch, Offset] | None = None


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
    ) -> None:
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
        self._group_commit = group_commit or GroupCommit(log, on_broken)
        self._group_commit.told = self._flushed
        self._rules = OrdinaryRules(log.config)
        log.epochs.assign(leader_epoch, log.end_offset)
        log.on_start = self.wake_watchers
        self._follow_config()

    def next_term(self, leader_epoch: Epoch) -> Partition:
        """The same node leads on, in another epoch: this term ends for everyone who waits in it."""
        self._end()
        return Partition(
            self.topic,
            self.topic_id,
            self.index,
            self.log,
            leader_epoch,
            self.clock,
            self.on_broken,
            generation=self._generation,
            group_commit=self._group_commit,
        )

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

    def _follow_config(self) -> None:
        config = self.log.config
        self.commits_at_append = config.flush_messages != 1
        self.flushes_in_turns = self._group_commit.flushes_in_turns
        self._rules = OrdinaryRules(config)
        self._has_ordinary = config.compression_type in ("producer", "uncompressed") and not config.stamps_at_append

    # -- writing

    def validate(self, records: Buffer) -> Validated:
        """Judges what a producer sent, without looking at the log; raises Refused. May run in another thread."""
        return validated(records, self.log.config, self.clock.wall_ms())

    def append(self, batch: Validated, acks: int) -> Appended:
        """Writes a validated batch; raises Refused. `when_committed` tells when it is safe."""
        config = self.log.config
        if self._lacks_replicas(acks):
            raise Refused(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas is {config.min_insync_replicas}, but 1 replica is in sync",
            )
        header = batch.header
        appended = self._append(self.log.append, batch.batch, header, self.leader_epoch, self.clock.wall_ms())
        if config.stamps_at_append and not appended.is_duplicate:
            appended = appended._replace(append_time_ms=header.max_timestamp)
        return appended

    def _lacks_replicas(self, acks: int) -> bool:
        return acks == -1 and self.log.config.min_insync_replicas > 1

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
        now_ms = self.clock.wall_ms()
        return self._append(self.log.append, batch, read_header(batch), self.leader_epoch, now_ms)

    def append_record(self, key: bytes, value: bytes | None) -> Offset:
        """Writes a record of this node in a batch of its own, which nobody has to read again to know it."""
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
        self._group_commit.flush_if_due()

    def _flushed(self) -> None:
        if not self.commits_at_append and not self.is_closed:
            self.advance(self.log.flushed_offset)

    def release_waiting(self) -> None:
        high_watermark, waiting = self.log.high_watermark, self.waiting
        while waiting and waiting[0][0] < high_watermark:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)

    def when_committed(self, last_offset: Offset) -> asyncio.Future[None] | None:
        """None when everything up to `last_offset` is committed; otherwise a future of it."""
        if last_offset < self.log.high_watermark:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        waiting = self.waiting
        if not waiting or waiting[-1][0] <= last_offset:
            waiting.append((last_offset, future))
        else:
            # A duplicate waits for an earlier offset than those that came after it.
            self.waiting = deque(sorted([*waiting, (last_offset, future)], key=lambda item: item[0]))
        return future

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

    def _diverging(self, offset: Offset, last_fetched_epoch: Epoch) -> tuple[Epoch, Offset] | None:
        """Where the reader's log and ours part, if what it has read is not what we have (KIP-595)."""
        epoch, end_offset = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.end_offset)
        if end_offset < 0:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch} is not known here")
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None

    def watch(self, watcher: object, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever there is more to read, the log begins later, or the partition is closed."""
        self.watchers[watcher] = wake

    def unwatch(self, watcher: object) -> None:
        self.watchers.pop(watcher, None)

    def wake_watchers(self) -> None:
        for wake in list(self.watchers.values()):
            wake()

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
        await self._group_commit.when_over()

    def abandon(self) -> None:
        """The partition is served here no longer."""
        self._group_commit.stop()
        self._end()

    def _end(self) -> None:
        """The term is over: everyone who waits is told to look for the leader again."""
        self.is_closed = True
        self._generation.raise_it()
        while self.waiting:
            _, future = self.waiting.popleft()
            if not future.done():
                future.set_exception(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is closed"))
                future.exception()  # whoever waited may have gone, and then it is no error that nobody hears of it
        self.wake_watchers()
