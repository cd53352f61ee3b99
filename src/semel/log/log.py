"""The log of one partition: append, read, flush, roll, cut.

Appends are synchronous and go to the page cache; `flush` makes them durable off the loop and is the only thing that
moves `flushed_offset`. What is derived from the batches (indexes, producers, aborted transactions, leader epochs) is
kept in step with every append and can always be rebuilt from them (see `recovery`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from semel.config import TopicConfig
from semel.host.api import Disk, File, FileRange
from semel.host.descriptors import is_short
from semel.log import listing
from semel.log.append_kernel import LogEnd
from semel.log.disk_trouble import NO_SPACE, DiskTrouble
from semel.log.epochs import FILE_NAME as EPOCHS_FILE
from semel.log.epochs import LeaderEpochs
from semel.log.errors import BrokenLog, NoRoom, Refused
from semel.log.indexes import AbortedTransaction
from semel.log.inventory import Inventory, state_of
from semel.log.kept_aside import remove_kept_aside
from semel.log.producers import NO_OFFSET, EndedTransaction, Producers
from semel.log.segment import LOG_SUFFIX, NO_TIMESTAMP, Segment
from semel.log.snapshots import remove_snapshot, snapshot_files, snapshot_offsets
from semel.log.types import Epoch, Offset, ProducerId
from semel.metrics.counts_kernel import TopicCounts
from semel.records.batch import BatchHeader, set_base_offset, set_leader_epoch
from semel.records.build import build_one
from semel.records.control import ControlType, control_batch
from semel.records.read import read_records
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio

    from semel.metrics.node_counts import FlushCounts

# Bytes of an earlier run are checked before they are sent: at most this much in one go, so that the loop never stalls.
_CHECK_BYTES = 1 << 20
_KEPT_SNAPSHOTS = 2
IDENTITY_FILE = "partition.metadata"


class Appended(NamedTuple):
    """Where a batch stands, now or since an earlier try."""

    base_offset: Offset
    last_offset: Offset
    is_duplicate: bool = False
    append_time_ms: int = -1


class Warmable(Protocol):
    path: str

    async def warm(self, position: int, length: int) -> None: ...


class Cold(NamedTuple):
    """The range is not in memory, or not ready: warm it off the loop, then read again."""

    file: Warmable
    position: int
    length: int


class TimestampOffset(NamedTuple):
    """An answer to a search by time."""

    timestamp_ms: int
    offset: Offset
    leader_epoch: Epoch


# Makes durable that a log may end here, and begins there, from now on.
AnnounceCut: TypeAlias = Callable[[Offset, Offset], Awaitable[None]]


def _ignore(log: Log) -> None:
    """Nobody asked to be told."""


@asynccontextmanager
async def _cut_alone() -> AsyncIterator[AnnounceCut]:
    """Nobody else works on the log, and nothing beside it says what it holds."""

    async def announce(end_offset: Offset, start_offset: Offset) -> None:
        pass

    yield announce


@contextmanager
def _telling_no_room() -> Iterator[None]:
    """Around what replaces small files, and nothing else: their old versions stay when a new one finds no room."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise NoRoom(error.errno, error.strerror) from error
        raise


class Log(LogEnd):
    """One partition's batches on one disk. Made by `recovery.load_log`; a log without data has no files."""

    segments: list[Segment]

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        *,
        start_offset: Offset = 0,
        segments: list[Segment] | None = None,
        producers: Producers | None = None,
        epochs: LeaderEpochs | None = None,
        end_offset: Offset | None = None,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.segments = segments or []
        self.producers = Producers() if producers is None else producers  # one without producers is falsy
        self.epochs = epochs or LeaderEpochs()
        self.inventory = Inventory()  # of the files on disk; kept by `listing`
        self.start_offset = start_offset
        self.end_offset = start_offset if end_offset is None else end_offset
        # Everything below is durable. Written to the recovery point checkpoint: recovery cuts nothing below it.
        self.flushed_offset = self.end_offset
        self.high_watermark = self.end_offset  # from here on it is moved by the term that has this log
        # Set by the store: what `partition.metadata` says, and who is told when a segment is sealed.
        self.identity: bytes | None = None
        self.on_roll: Callable[[Log], None] = _ignore
        # Around every cut at the end: keeps other upkeep away.
        self.cutting: Callable[[], AbstractAsyncContextManager[AnnounceCut]] = _cut_alone
        # A cut was made, and is not durable yet: see `truncation`. Nothing may be appended meanwhile.
        self.has_unsynced_cut = False
        self.trouble = DiskTrouble()  # the store's, if there is a store
        self.flushes: FlushCounts | None = None  # likewise
        # Set by the partition: who is told when the log begins later than before.
        self.on_start: Callable[[], None] = lambda: None
        self.dirty: list[Segment] = []
        self.pending = []
        self.pending_bytes = 0
        self.counts = TopicCounts()  # those of its topic, if it is served
        self._unsettled: list[Segment] = []
        self._due_snapshot: tuple[Offset, dict[ProducerId, bytes]] | None = None
        # How many segment files were made, and of how many the names are durable.
        self._names_made = 0
        self._names_synced = 0
        self._is_name_durable = bool(self.segments)
        self._new_file: File | None = None
        self._is_flushing = False
        self._flush_began_ns = 0
        self._flush_over: list[asyncio.Future[None]] = []
        # A disk that refused to make something durable is not asked again: what it says then is not to be believed.
        self._disk_failure: OSError | None = None
        self.is_closed = False

    def restore_high_watermark(self, offset: Offset) -> None:
        """As an earlier run noted it, before a term has this log: with other replicas its end may not be committed."""
        self.high_watermark = max(self.start_offset, min(offset, self.end_offset))

    # -- append

    def append(self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: Epoch, now_ms: int) -> Appended:
        """Gives a validated batch the next offsets and writes it; one that is there already is answered as it was."""
        base_offset = self.end_offset
        draft = None
        if header.producer_id >= 0:
            draft = self.producers.check(header, base_offset, now_ms)
            if draft.duplicate_of is not None:
                self.counts.duplicates += 1
                return Appended(draft.duplicate_of.first_offset, draft.duplicate_of.last_offset, is_duplicate=True)
        self._write(batch, header, leader_epoch, now_ms)
        if draft is not None:
            self.producers.apply(draft)
        self.counts.add_batches(1, self.end_offset - base_offset, len(batch))
        return Appended(base_offset, self.end_offset - 1)

    def append_record(self, key: bytes, value: bytes | None, leader_epoch: Epoch, now_ms: int) -> Offset:
        """Writes a record of this node in a batch of its own; where it stands."""
        offset = self.end_offset
        batch = build_one(value, key=key, timestamp_ms=now_ms, base_offset=offset, leader_epoch=leader_epoch)
        self._write_placed(batch, offset, now_ms, leader_epoch, now_ms)
        return offset

    def append_marker(
        self,
        kind: ControlType,
        producer_id: ProducerId,
        producer_epoch: Epoch,
        coordinator_epoch: Epoch,
        leader_epoch: Epoch,
        now_ms: int,
        *,
        bumps_epoch: bool = False,
    ) -> Appended:
        """Writes the end of a transaction. The aborted index is in step before anyone can read past the marker."""
        draft = self.producers.check_marker(
            producer_id, producer_epoch, coordinator_epoch, now_ms, bumps_epoch=bumps_epoch
        )
        offset = self.end_offset
        batch = control_batch(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        self._write_placed(batch, offset, now_ms, leader_epoch, now_ms)
        ended = self.producers.apply_marker(draft, offset, kind == ControlType.ABORT)
        if ended is not None and ended.aborted:
            self.note_aborted(self.segments[-1], ended)
        return Appended(offset, offset)

    def note_aborted(self, segment: Segment, ended: EndedTransaction) -> None:
        oldest_open = self.producers.oldest_open_offset()
        stable = ended.marker_offset + 1 if oldest_open is None else oldest_open
        segment.aborted_index.append(
            AbortedTransaction(ended.producer_id, ended.first_offset, ended.marker_offset, stable)
        )

    def _write(self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: Epoch, now_ms: int) -> None:
        set_base_offset(batch, self.end_offset)
        set_leader_epoch(batch, leader_epoch)
        last_offset = self.end_offset + header.last_offset_delta
        self._write_placed(batch, last_offset, header.max_timestamp, leader_epoch, now_ms)

    def _write_placed(
        self,
        batch: bytearray | memoryview,
        last_offset: Offset,
        max_timestamp_ms: int,
        leader_epoch: Epoch,
        now_ms: int,
    ) -> None:
        """Writes a batch that carries its offsets and its leader epoch."""
        assert not self.pending, "others have these offsets, and are not written yet"
        base_offset, size_bytes = self.end_offset, len(batch)
        try:
            segment = self.segment_for(size_bytes, last_offset, max_timestamp_ms, now_ms)
        except OSError as error:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk refused a segment: {error.strerror}") from error
        position = segment.write([batch])
        segment.note(last_offset, max_timestamp_ms, position, size_bytes, self.config.index_interval_bytes)
        self.note_written(segment, leader_epoch, base_offset)

    def segment_for(self, size_bytes: int, last_offset: Offset, max_timestamp_ms: int, now_ms: int) -> Segment:
        """The active segment, after a roll when it is full, old, or out of index space."""
        if not self.segments:
            self._make_directory()
            self.segments.append(self._new_segment())
            return self.segments[-1]
        active = self.segments[-1]
        config = self.config
        if active.is_full(
            size_bytes,
            last_offset,
            max_timestamp_ms,
            now_ms,
            config.segment_bytes,
            config.segment_index_bytes,
            config.segment_ms,
        ):
            self.roll()
            active = self.segments[-1]
        return active

    def _make_directory(self) -> None:
        self.disk.make_dirs(self.directory)
        path = f"{self.directory}/{IDENTITY_FILE}"
        if self.identity is None or self._new_file is not None:
            return
        # One may be there that could not be written whole, and could not be removed then either.
        file = self.disk.open(path, create=not self.disk.exists(path))
        try:
            file.write_at(0, self.identity)
        except OSError:
            self.disk.remove(path)
            raise
        self._new_file = file

    def _new_segment(self) -> Segment:
        left_over = f"{self.directory}/{self.end_offset:020d}{LOG_SUFFIX}"
        if self.disk.exists(left_over):  # of a roll that failed, when that could not be removed either
            self.disk.remove(left_over)
        segment = Segment(self.disk, self.directory, self.end_offset, is_new=True, is_active=True)
        self._names_made += 1
        return segment

    def roll(self) -> None:
        """Seals the active segment and begins the next one. `settle` makes the sealed one safe to trust."""
        if not self.segments or not self.segments[-1].size_bytes:
            return
        sealed = self.segments[-1]
        following = self._new_segment()
        try:
            sealed.seal()
        except OSError:
            following.remove()
            raise
        self.segments.append(following)
        self._unsettled.append(sealed)
        if not self.dirty or self.dirty[-1] is not sealed:
            # A write that was refused may have been cut back since its last flush. If that did not last, what comes now
            # would lie behind a torn batch.
            self.dirty.append(sealed)
        self._due_snapshot = (self.end_offset, self.producers.rows())
        self.on_roll(self)

    # -- durability

    @property
    def is_dirty(self) -> bool:
        return bool(self.dirty) or self._names_made > self._names_synced

    @property
    def needs_settling(self) -> bool:
        return bool(self._unsettled)

    def is_settled(self, segment: Segment) -> bool:
        """Whether a producer snapshot that is durable follows a sealed segment. Before that it must neither go nor get
        gaps: recovery reads it again, and would take a gap for the end of the log."""
        return segment not in self._unsettled

    async def flush(self) -> None:
        """Makes durable what was appended before the call. A disk that refuses is final: the node must stop."""
        self._check_may_flush()
        self._begin_flush()
        end_offset = self.end_offset
        dirty, self.dirty = self.dirty, []
        try:
            await self._sync_names()
            for segment in dirty:
                if not segment.is_removed:
                    await segment.flush()
        except BaseException as failure:
            self._flushed(dirty, end_offset, failure)
            raise
        self._flushed(dirty, end_offset, None)

    def flush_then(self, done: Callable[[BaseException | None], None]) -> bool:
        """As `flush` where that is to flush one file, as it mostly is; `done` is told when it is over, with what went
        wrong, and it takes no task. False: there is more to do, and nothing is done."""
        dirty, end_offset = self.dirty, self.end_offset
        if len(dirty) != 1 or dirty[0].is_removed or not self._are_names_durable:
            return False
        self._check_may_flush()

        def flushed(failure: OSError | None) -> None:
            self._flushed(dirty, end_offset, failure)
            done(failure)

        dirty[0].file.flush_then(flushed)
        self._begin_flush()
        self.dirty = []
        return True

    def _check_may_flush(self) -> None:
        if self._is_flushing:
            raise BrokenLog(f"two flushes of {self.directory} at once")
        self.check_disk()

    def _begin_flush(self) -> None:
        self._is_flushing = True
        if self.flushes is not None:
            self._flush_began_ns = self.flushes.now_ns()

    async def when_not_flushing(self) -> None:
        """Waits for the flush that is under way."""
        import asyncio  # not for those who only look into files

        while self._is_flushing:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flush_over.append(over)
            await over

    def _flushed(self, dirty: list[Segment], end_offset: Offset, failure: BaseException | None) -> None:
        self._is_flushing = False
        waiting, self._flush_over = self._flush_over, []
        for over in waiting:
            if not over.done():
                over.set_result(None)
        if failure is None:
            if self.flushes is not None:
                self.flushes.flushed(self._flush_began_ns, max(0, end_offset - self.flushed_offset))
            self.flushed_offset = max(self.flushed_offset, end_offset)
        else:
            self.dirty = dirty + self.dirty  # cancelled, perhaps: a clean stop still has to flush them
            self.note_failure(failure)

    def note_failure(self, failure: BaseException) -> None:
        # Want of descriptors: the disk was not even asked. No room: what was there is still there.
        if isinstance(failure, OSError) and not is_short(failure) and not isinstance(failure, NoRoom):
            self._disk_failure = failure

    def check_disk(self) -> None:
        if self._disk_failure is not None:
            raise self._disk_failure

    @property
    def _are_names_durable(self) -> bool:
        return self._names_made == self._names_synced and self._is_name_durable and self._new_file is None

    async def _sync_names(self) -> None:
        """Makes the directory, its identity and the names in it durable. `flush` and `settle` may be in here at once,
        and each relies on it for itself: what counts as done is noted when it is."""
        new_file, made = self._new_file, self._names_made
        if new_file is not None:
            await new_file.flush()
            new_file.close()
            self._new_file = None
        if made > self._names_synced:
            await self.disk.sync_dir(self.directory)
        if not self._is_name_durable and self.segments:
            await self.disk.sync_dir(self.directory.rpartition("/")[0])
            self._is_name_durable = True
        self._names_synced = max(self._names_synced, made)

    async def settle(self) -> None:
        """After a roll: sealed segments, their indexes, the epochs and a producer snapshot become durable, in this
        order: a snapshot at the end of a segment tells recovery that it need not read the segment again. After NoRoom
        it is to be called again; any other failure of the disk is final."""
        self.check_disk()
        try:
            await self._settle()
        except BaseException as failure:
            self.note_failure(failure)
            raise

    async def _settle(self) -> None:
        unsettled, due = list(self._unsettled), self._due_snapshot
        for segment in unsettled:
            if not segment.is_removed:
                await segment.flush()
                await segment.flush_indexes()
        await self._sync_names()
        await self.disk.sync_dir(self.directory)
        with _telling_no_room():
            await self.write_epochs()
            if due is not None:
                # Taken when the segment was sealed, written after its bytes are durable: never ahead of the log.
                for path, data in snapshot_files(self.directory, *due):
                    if self.is_closed:  # removed, and the directory of that name may be another log's by now
                        return
                    await self.disk.replace_file(path, data)
                    self.inventory.files[path.rpartition("/")[2]] = state_of(data)
                self.flushed_offset = max(self.flushed_offset, due[0])
                self.inventory.end_offset = max(self.inventory.end_offset, due[0])
        # Only now: if this was cancelled, a clean stop still has to do it. Meanwhile another roll may have added to it.
        self._unsettled = [segment for segment in self._unsettled if segment not in unsettled]
        if self._due_snapshot is due:
            self._due_snapshot = None
        with _telling_no_room():
            await listing.list_settled(self)
        if not self.is_closed:
            self._remove_old_snapshots()

    async def write_epochs(self) -> None:
        if self.epochs.is_dirty and self.segments and not self.is_closed:
            self.epochs.is_dirty = False
            entries = list(self.epochs.entries)
            try:
                await self.disk.replace_file(f"{self.directory}/{EPOCHS_FILE}", self.epochs.encode())
            except BaseException:
                self.epochs.is_dirty = True
                raise
            self.inventory.epochs = entries

    def kept_snapshots(self) -> list[Offset]:
        """The newest, and the two before the active segment: recovery of that segment begins at one of them."""
        offsets = snapshot_offsets(self.disk.list_dir(self.directory))
        active_base = self.segments[-1].base_offset
        return sorted({*[offset for offset in offsets if offset <= active_base][-_KEPT_SNAPSHOTS:], *offsets[-1:]})

    def _remove_old_snapshots(self) -> None:
        kept = self.kept_snapshots()
        for offset in snapshot_offsets(self.disk.list_dir(self.directory)):
            if offset not in kept:
                remove_snapshot(self.disk, self.directory, offset)

    def close(self) -> None:
        """A clean stop: everything durable, with a snapshot at the end, so that the next start needs no scan."""
        if self.is_closed:
            return
        self.check_disk()
        self.is_closed = True
        if self.segments:
            for segment in self.segments:
                if segment in self.dirty or segment in self._unsettled or segment is self.segments[-1]:
                    segment.write_indexes()
                    segment.flush_now()
            if self._new_file is not None:
                self._new_file.flush_now()
                self._new_file.close()
            self.disk.sync_dir_now(self.directory)
            self.disk.sync_dir_now(self.directory.rpartition("/")[0])
            if self.epochs.is_dirty:
                self.disk.replace_file_now(f"{self.directory}/{EPOCHS_FILE}", self.epochs.encode())
                self.inventory.epochs = list(self.epochs.entries)
            last_snapshot = (self.end_offset, self.producers.rows())
            # The one before the active segment: after a crash, recovery of that segment begins there.
            for due in (self._due_snapshot, last_snapshot):
                for path, data in snapshot_files(self.directory, *due) if due is not None else ():
                    self.disk.replace_file_now(path, data)
                    self.inventory.files[path.rpartition("/")[2]] = state_of(data)
            self.flushed_offset = self.end_offset
            listing.list_everything_now(self)
        elif self.has_unsynced_cut and self.disk.exists(self.directory):
            self.disk.sync_dir_now(self.directory)
        for segment in self.segments:
            segment.close()

    # -- read

    def read(
        self, offset: Offset, max_bytes: int, up_to: Offset, *, at_least_one: bool, warmed: bool = False
    ) -> FileRange | Cold | None:
        """The batches from the one that holds `offset`, ending before `up_to`; None when there are none to give.

        `at_least_one`: the first batch is given even if it is larger than `max_bytes`. The last batch may be cut, as
        Kafka cuts it: clients ask again for it.
        """
        if offset < self.start_offset or offset > self.end_offset:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not between {self.start_offset} and {self.end_offset}",
            )
        if offset >= up_to:
            return None
        newest = self.segments[-1]
        if up_to >= newest.next_offset:
            position = newest.position_after(offset)
            if position is not None and newest.size_bytes - position <= max_bytes:
                newest.note_reached(newest.next_offset, newest.size_bytes)
                return FileRange(newest.file, position, newest.size_bytes - position)
        for segment in self.segments[self.segment_number(offset) :]:
            if segment.unchecked is not None:
                if not warmed:
                    return Cold(segment.unchecked, offset, max_bytes)
                segment.unchecked.check_now()
            first = segment.locate(offset)
            if first is None:
                continue
            if first.last_offset >= up_to:
                return None
            limit = segment.size_bytes
            if up_to < segment.next_offset:
                end = segment.locate(up_to)
                limit = limit if end is None else end.position
            length = min(limit - first.position, max_bytes)
            if first.position + length == limit and segment is self.segments[-1]:
                segment.note_reached(min(up_to, segment.next_offset), limit)
            if length < first.size_bytes:
                if not at_least_one:
                    return None
                length = first.size_bytes
            return self._checked_range(segment, first.position, length, first.size_bytes, warmed)
        return None

    def _checked_range(
        self, segment: Segment, position: int, length: int, first_bytes: int, warmed: bool
    ) -> FileRange | Cold:
        if not segment.is_trusted(position, position + length):
            length = min(length, max(first_bytes, _CHECK_BYTES))
            if not warmed and not segment.file.is_warm(position, length):
                return Cold(segment.file, position, length)
            length = min(length, segment.check_range(position, position + length) - position)
        elif not warmed and segment is not self.segments[-1] and not segment.file.is_warm(position, length):
            return Cold(segment.file, position, length)
        return FileRange(segment.file, position, length)

    def segment_number(self, offset: Offset) -> int:
        newest = len(self.segments) - 1
        if newest >= 0 and offset >= self.segments[newest].base_offset:  # nearly always
            return newest
        return max(0, bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1)

    def aborted_between(self, offset: Offset, read: FileRange) -> list[AbortedTransaction]:
        """The aborted transactions that a read_committed reader needs to know to filter this range."""
        number = self.segment_number(offset)
        while number + 1 < len(self.segments) and self.segments[number].file is not read.file:
            number += 1
        upper = self.segments[number].upper_offset(read.position + read.length)
        found: list[AbortedTransaction] = []
        for segment in self.segments[number:]:
            for aborted in segment.aborted_index.entries():
                if aborted.last_offset >= offset and aborted.first_offset < upper:
                    found.append(aborted)
                if aborted.last_stable_offset >= upper:
                    return found
        return found

    @property
    def last_stable_offset(self) -> Offset:
        """How far a read_committed reader may read."""
        unstable = self.producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(self.high_watermark, unstable)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a time."""
        for segment in self.segments:
            found = segment.find_timestamp(timestamp_ms, self.start_offset)
            while found is not None:
                header, batch = found
                for record in read_records(batch, header):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self.start_offset:
                        return TimestampOffset(record.timestamp_ms, record.offset, header.partition_leader_epoch)
                found = segment.find_timestamp(timestamp_ms, header.next_offset)
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that carries the largest timestamp."""
        newest = max(self.segments, key=lambda segment: segment.max_timestamp_ms, default=None)
        if newest is None or newest.max_timestamp_ms == NO_TIMESTAMP:
            return None
        found = self.offset_for_timestamp(newest.max_timestamp_ms)
        if found is not None:
            return found
        # A batch that compaction has emptied carries it: the batch stands for its records.
        offset = max(newest.max_timestamp_offset, self.start_offset)
        return TimestampOffset(newest.max_timestamp_ms, offset, self.epochs.epoch_at(offset))

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    # -- cutting

    def advance_start(self, offset: Offset) -> None:
        """Records below `offset` are no longer there for anyone. Whole segments below it go with `remove_before`."""
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_start(offset)
            self.on_start()

    def removable_before(self, offset: Offset) -> list[Segment]:
        """Sealed segments that lie wholly below `offset`."""
        return [
            s for s, following in zip(self.segments, self.segments[1:], strict=False) if following.base_offset <= offset
        ]

    async def retire_segments(self, removed: list[Segment]) -> None:
        """Takes segments off the front, after they are taken out of the inventory."""
        if removed:
            await listing.unlist(self, [segment.base_offset for segment in removed])
            if not self.is_closed:
                self.remove_segments(removed)
                remove_kept_aside(self.disk, self.directory, self.segments[0].base_offset)

    def remove_segments(self, removed: list[Segment]) -> None:
        """As `retire_segments`, when they are out of the inventory. What is being sent of them stays readable."""
        if not removed:
            return
        self.segments = [segment for segment in self.segments if segment not in removed]
        self.advance_start(self.segments[0].base_offset)
        for segment in removed:
            segment.remove()

    def cut_end(self, kept: int, rows_at_last: tuple[Offset, dict[ProducerId, bytes]] | None) -> list[Segment]:
        """Keeps the first segments, of which the last one is active now and has its new end; the others are returned.
        `rows_at_last` are the producers where that segment begins, if they are known anew. The caller makes it all
        durable before anything is appended (`truncation`)."""
        removed, self.segments = self.segments[kept:], self.segments[:kept]
        active = self.segments[-1] if self.segments else None
        gone = {id(segment) for segment in removed}
        self.end_offset = self.start_offset if active is None else active.next_offset
        self.start_offset = min(self.start_offset, self.end_offset)
        self.flushed_offset = min(self.flushed_offset, self.end_offset)
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self.epochs.truncate_end(self.end_offset)
        self.dirty = [segment for segment in self.dirty if id(segment) not in gone and segment is not active]
        if active is not None:
            self.dirty.append(active)
        self._unsettled = [segment for segment in self._unsettled if id(segment) not in gone and segment is not active]
        if self._due_snapshot is not None and self._due_snapshot[0] > self.end_offset:
            self._due_snapshot = rows_at_last if self._unsettled else None
        self.has_unsynced_cut = True
        return removed

    def begin_again(self, offset: Offset) -> None:
        """There is nothing any more: the log begins at `offset`, and ends there."""
        self.start_offset = offset
        self.cut_end(0, None)
        self.epochs.clear()
        self.flushed_offset = self.high_watermark = offset

    def keeps_unsettled(self, kept: int) -> bool:
        """Whether a sealed segment among the first ones, without the last of them, has no durable snapshot behind it,
        and none is to be written that these first ones reach."""
        sealed = {id(segment) for segment in self.segments[: kept - 1]}
        due = self._due_snapshot
        is_due = due is not None and due[0] <= self.segments[kept - 1].base_offset
        return not is_due and any(id(segment) in sealed for segment in self._unsettled)

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> None:
        """Compaction's swap, in memory; the files are already in place."""
        at = self.segments.index(old[0])
        self.segments[at : at + len(old)] = new
        for segment in old:
            segment.close()
            segment.is_removed = True


__all__ = ["NO_OFFSET", "Appended", "Cold", "Log", "TimestampOffset"]
