"""Log compaction: of every key only the newest record stays, tombstones and markers for a while, aborted data not.

`compact` reads sealed segments and writes their compacted successors into a sub-directory; it runs away from the loop
and touches nothing that is in use. Two passes: first the newest offset of every key in the dirty part, then all
segments again, keeping what is still needed. `compaction_swap` puts the result in place.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from semel.host.api import Disk
from semel.log.compaction_swap import WORK_DIRECTORY, clear_work
from semel.log.indexes import AbortedTransaction
from semel.log.segment import Segment
from semel.log.types import Epoch, Offset, ProducerId
from semel.records.batch import BatchHeader, read_header
from semel.records.compact import filter_batch, record_keys
from semel.records.control import ControlType, read_control

# What one key costs in the map: the dict slot, the bytes object and the offset.
_KEY_OVERHEAD_BYTES = 160


@dataclass(frozen=True)
class CompactionTask:
    """What to compact and how. Segments are sealed; `first_dirty_offset` is where the last compaction ended."""

    directory: str
    bases: list[Offset]
    end_offset: Offset
    first_dirty_offset: Offset
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_interval_bytes: int
    map_bytes: int
    # Of the whole log: a transaction that began in these segments may have its marker in a later one.
    aborted: list[AbortedTransaction]
    # The last data batch of every producer that is known: (epoch, last offset), kept as an empty batch if need be.
    producers: dict[ProducerId, tuple[Epoch, Offset]] = field(default_factory=dict)


@dataclass(frozen=True)
class CompactionResult:
    """What was made. `old_bases` are fewer than asked for when the map was full: the rest waits for the next run."""

    old_bases: list[Offset]
    new_bases: list[Offset]
    end_offset: Offset
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


class _Transactions:
    """Follows the transactions of the segments in order, and says which batches are aborted or ended long ago."""

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda a: a.first_offset, reverse=True)
        self._open_aborted: dict[ProducerId, AbortedTransaction] = {}
        self._has_data: set[ProducerId] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """For a transactional data batch, in order."""
        while self._aborted and self._aborted[-1].first_offset <= header.base_offset:
            started = self._aborted.pop()
            self._open_aborted[started.producer_id] = started
        self._has_data.add(header.producer_id)
        return header.producer_id in self._open_aborted

    def end(self, header: BatchHeader) -> tuple[bool, AbortedTransaction | None]:
        """For a marker: whether none of its data is left in the log, and the aborted transaction that it ends."""
        while self._aborted and self._aborted[-1].first_offset <= header.base_offset:
            started = self._aborted.pop()
            self._open_aborted[started.producer_id] = started
        aborted = self._open_aborted.pop(header.producer_id, None)
        had_data = header.producer_id in self._has_data
        self._has_data.discard(header.producer_id)
        return not had_data, aborted


def compact(disk: Disk, task: CompactionTask) -> CompactionResult:
    """Compacts as many of the task's segments as the key map allows, at least one of the dirty ones."""
    clear_work(disk, task.directory)
    work = f"{task.directory}/{WORK_DIRECTORY}"
    disk.make_dirs(work)
    segments = [Segment(disk, task.directory, base, is_new=False, is_active=False) for base in task.bases]
    try:
        ends = [*task.bases[1:], task.end_offset]
        for segment, end in zip(segments, ends, strict=True):
            segment.next_offset = end
        newest, map_end = _newest_offsets(segments, task)
        kept = [segment for segment in segments if segment.next_offset <= map_end]
        writer = _Writer(disk, work, task, newest)
        for group in _groups(kept, task.segment_bytes):
            writer.write_group(group)
        before = sum(segment.size_bytes for segment in kept)
    finally:
        for segment in segments:
            segment.close()
    disk.sync_dir_now(work)
    # The sub-directory's own name too: a manifest without it would remove the old segments for nothing.
    disk.sync_dir_now(task.directory)
    return CompactionResult(
        [segment.base_offset for segment in kept],
        writer.new_bases,
        map_end,
        before,
        writer.bytes_written,
        writer.records_read,
        writer.records_kept,
    )


def _newest_offsets(segments: list[Segment], task: CompactionTask) -> tuple[dict[bytes, Offset], Offset]:
    """The newest offset of every key in the dirty part, and the offset up to which the map is complete."""
    newest: dict[bytes, Offset] = {}
    used_bytes = 0
    transactions = _Transactions(task.aborted)
    map_end = task.end_offset
    for segment in segments:
        if used_bytes > task.map_bytes:
            map_end = segment.base_offset
            break
        for header, batch in segment.batches_in_order():
            if header.is_control:
                transactions.end(header)
                continue
            if (
                header.is_transactional and transactions.is_aborted(header)
            ) or header.last_offset < task.first_dirty_offset:
                continue
            for offset, key, _, _ in record_keys(batch, header):
                if key is not None and offset >= task.first_dirty_offset:
                    if key not in newest:
                        used_bytes += len(key) + _KEY_OVERHEAD_BYTES
                    newest[key] = offset
    return newest, map_end


def _groups(segments: list[Segment], segment_bytes: int) -> Iterator[list[Segment]]:
    """Neighbours that together still fit one segment, so that a compacted log does not fall to crumbs."""
    group: list[Segment] = []
    size = 0
    for segment in segments:
        spans_too_far = group and segment.next_offset - group[0].base_offset > (1 << 31) - 1
        if group and (size + segment.size_bytes > segment_bytes or spans_too_far):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size_bytes
    if group:
        yield group


class _Writer:
    def __init__(self, disk: Disk, work: str, task: CompactionTask, newest: dict[bytes, Offset]) -> None:
        self._disk = disk
        self._work = work
        self._task = task
        self._newest = newest
        self._transactions = _Transactions(task.aborted)
        self.new_bases: list[Offset] = []
        self.bytes_written = 0
        self.records_read = 0
        self.records_kept = 0

    def write_group(self, group: list[Segment]) -> None:
        """One new segment, under the first one's name even if nothing is left: the log still begins where it began."""
        base = group[0].base_offset
        made = Segment(self._disk, self._work, base, is_new=True, is_active=True)
        for segment in group:
            for header, batch in segment.batches_in_order():
                self.records_read += header.record_count
                kept = self._control(header, batch, made) if header.is_control else self._data(header, batch)
                if kept is not None:
                    made.append(kept[0], kept[1], self._task.index_interval_bytes)
                    self.records_kept += kept[1].record_count
        made.seal()
        made.flush_now()
        self.bytes_written += made.size_bytes
        self.new_bases.append(base)
        made.close()

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        known = self._task.producers.get(header.producer_id)
        return known == (header.producer_epoch, header.last_offset)

    def _data(self, header: BatchHeader, batch: memoryview) -> tuple[memoryview | bytearray, BatchHeader] | None:
        is_aborted = header.is_transactional and self._transactions.is_aborted(header)
        horizon_passed = header.has_delete_horizon and self._task.now_ms >= header.base_timestamp
        keep = bytearray(header.record_count)
        keeps_tombstone = False
        if not is_aborted:
            for number, (offset, key, has_value, _) in enumerate(record_keys(batch, header)):
                if key is None or offset < self._newest.get(key, -1):
                    continue
                if has_value or not horizon_passed:
                    keep[number] = 1
                    keeps_tombstone = keeps_tombstone or not has_value
        horizon = None
        if keeps_tombstone and not header.has_delete_horizon:
            horizon = self._task.now_ms + self._task.delete_retention_ms
        if horizon is None and keep.count(1) == header.record_count and header.record_count:
            return batch, header
        if horizon is None and header.record_count == 0 and self._is_last_of_producer(header):
            return batch, header
        filtered = filter_batch(
            batch, keep, header=header, delete_horizon_ms=horizon, keep_empty=self._is_last_of_producer(header)
        )
        return None if filtered is None else (filtered, read_header(filtered))

    def _control(
        self, header: BatchHeader, batch: memoryview, made: Segment
    ) -> tuple[memoryview | bytearray, BatchHeader] | None:
        """A marker stays while data of its transaction is left, and then for the time that tombstones stay."""
        marker = read_control(batch, header)
        data_is_gone, aborted = self._transactions.end(header)
        if marker is None:
            return (batch, header) if self._is_last_of_producer(header) else None
        if marker.kind == ControlType.ABORT and aborted is not None and not data_is_gone:
            made.aborted_index.append(aborted)
        if not data_is_gone:
            return batch, header
        if not header.has_delete_horizon:
            horizon = self._task.now_ms + self._task.delete_retention_ms
            stamped = filter_batch(batch, b"\x01" * header.record_count, header=header, delete_horizon_ms=horizon)
            return None if stamped is None else (stamped, read_header(stamped))
        return None if self._task.now_ms >= header.base_timestamp else (batch, header)
