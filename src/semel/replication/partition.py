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
from semel.log.produce_kernel import OrdinaryBatch, OrdinaryProduce
from semel.log.types import Epoch, Offset, ProducerId
from semel.log.validate import Validated, validated
from semel.records.batch import read_header
from semel.records.control import ControlType
from semel.wire.errors import ErrorCode

logger = logging.getLogger("semel.replication")

NO_EPOCH = -1
UP_TO_HIGH_WATERMARK = -1
_NEVER_MS = 1 << 40


class Fetched(NamedTuple):
    """What a reader gets, with the offsets that it is told."""

    records: FileRange | Cold | None
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: list[AbortedTransaction] | None = None
    diverging: tuple[Epoch, Offset] | None = None


class Partition:
    """A partition that this node leads."""

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        leader_epoch: Epoch,
        clock: Clock,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.clock = clock
        self.on_broken = on_broken
        self._waiting_for_commit: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self.watchers: dict[object, Callable[[], None]] = {}
        self._is_flushing = False
        self._whole_flush: asyncio.Task[None] | None = None  # the last one of more than a file
        self._flush_over: asyncio.Future[None] | None = None  # while it closes
        self._flush_timer: asyncio.TimerHandle | None = None
        self._ordinary: OrdinaryBatch | None = None
        self.is_closed = False
        log.epochs.assign(leader_epoch, log.end_offset)
        log.on_start = self.wake_watchers

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
        self.tell_appended()

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

    def ordinary_for(self, acks: int) -> OrdinaryBatch | None:
        """What batches are like that can be written as they are. None: with its settings, there are none."""
        config = self.log.config
        if (
            config.compression_type not in ("producer", "uncompressed")
            or config.stamps_at_append
            or self._lacks_replicas(acks)
        ):
            return None
        if self._ordinary is None or self._ordinary.config is not config:
            self._ordinary = OrdinaryBatch(config)
        return self._ordinary

    def append_ordinary(self, sent: memoryview, ordinary: OrdinaryBatch | OrdinaryProduce) -> Offset | None:
        """As `validate` and `append`, of an ordinary batch or request: its first offset. None: it is not one."""
        now_ms = self.clock.wall_ms()
        base_offset = self._write(self.log.append_ordinary, sent, ordinary, self.leader_epoch, now_ms)
        if base_offset is not None:
            self.tell_appended()
        return base_offset

    def append_prepared(self, batch: bytearray) -> Appended:
        """Writes a batch that this node built itself."""
        now_ms = self.clock.wall_ms()
        return self._append(self.log.append, batch, read_header(batch), self.leader_epoch, now_ms)

    def append_record(self, key: bytes, value: bytes | None) -> Offset:
        """Writes a record of this node in a batch of its own, which nobody has to read again to know it."""
        offset = self._write(self.log.append_record, key, value, self.leader_epoch, self.clock.wall_ms())
        self.tell_appended()
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
            self.tell_appended()
        return appended

    def _write(self, write: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Whoever asked for it, a client or a task of the node itself: if the log is broken, the node ends."""
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

    @property
    def flushes_in_turns(self) -> bool:
        """Whether its settings want a flush after so many records or so much time."""
        return self.log.config.flush_messages < 1 << 62 or self.log.config.flush_ms < _NEVER_MS

    def tell_appended(self) -> None:
        """Something was appended: flushes begin, and whoever waits for it is told, as far as it is committed."""
        log = self.log
        if log.config.flush_messages == 1:
            if log.is_dirty:
                self._flush_soon()
            return
        self._advance(log.end_offset)
        if log.end_offset - log.flushed_offset >= log.config.flush_messages:
            self._flush_soon()
        elif self._flush_timer is None and log.config.flush_ms < _NEVER_MS:
            self._flush_timer = self._loop.call_later(log.config.flush_ms / 1000, self._flush_overdue)

    def _flush_overdue(self) -> None:
        self._flush_timer = None
        self._flush_soon()

    def _flush_soon(self) -> None:
        """When this turn of the loop is over: what else comes in it is part of the flush."""
        if not self._is_flushing and not self.is_closed:
            self._is_flushing = True
            self._loop.call_soon(self._begin_flushing)

    def _begin_flushing(self) -> None:
        self._go_on_flushing(self.log.is_dirty)

    def _go_on_flushing(self, is_due: bool) -> None:
        """Group commit: each flush makes durable whatever came during the one before."""
        if is_due and not self.is_closed:
            try:
                if not self.log.flush_then(self._flushed):
                    self._whole_flush = self._loop.create_task(self.log.flush())
                    self._whole_flush.add_done_callback(self._flushed_whole)
                return
            except Exception as error:
                self.on_broken(error)
        self._is_flushing = False
        if self._flush_over is not None:
            self._flush_over.set_result(None)

    def _flushed_whole(self, flush: asyncio.Task[None]) -> None:
        if not flush.cancelled():  # else the node has ended
            self._flushed(flush.exception())

    def _flushed(self, error: BaseException | None) -> None:
        log = self.log
        if error is not None:
            # A partition that was deleted meanwhile has lost its files: that is no failure of the disk.
            if not self.is_closed:
                self.on_broken(error)
            self._go_on_flushing(False)
        elif log.config.flush_messages == 1:
            self._go_on_flushing(log.is_dirty)
            self._advance(log.flushed_offset)
        else:
            self._go_on_flushing(log.end_offset - log.flushed_offset >= log.config.flush_messages)

    def _advance(self, high_watermark: Offset) -> None:
        """Moves the high watermark up, never back, and wakes who waited for it."""
        log = self.log
        if high_watermark <= log.high_watermark:
            return
        log.high_watermark = high_watermark
        waiting = self._waiting_for_commit
        while waiting and waiting[0][0] < high_watermark:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)
        if self.watchers:
            self.wake_watchers()

    def when_committed(self, last_offset: Offset) -> asyncio.Future[None] | None:
        """None when everything up to `last_offset` is committed; otherwise a future of it."""
        if last_offset < self.log.high_watermark:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        waiting = self._waiting_for_commit
        if not waiting or waiting[-1][0] <= last_offset:
            waiting.append((last_offset, future))
        else:
            # A duplicate waits for an earlier offset than those that came after it.
            self._waiting_for_commit = deque(sorted([*waiting, (last_offset, future)], key=lambda item: item[0]))
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

    async def close(self) -> None:
        """A clean stop: waits for the flush that is under way."""
        self.abandon()
        if self._is_flushing:
            self._flush_over = self._loop.create_future()
            await self._flush_over

    def abandon(self) -> None:
        """The partition is served here no longer: everyone who waits is told to look for its leader again."""
        self.is_closed = True
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        while self._waiting_for_commit:
            _, future = self._waiting_for_commit.popleft()
            if not future.done():
                future.set_exception(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is closed"))
                future.exception()  # whoever waited may have gone, and then it is no error that nobody hears of it
        self.wake_watchers()
