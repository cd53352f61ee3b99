"""From the files of one partition to a Log: what a start finds, cuts and rebuilds.

Segments that a producer snapshot follows are durable with their indexes, and are trusted (each range is still checked
when it is first read). The others are read batch by batch: indexes, producers and epochs are rebuilt, and at the first
batch that is torn or missing the log ends. What was acknowledged lies before that point, because it was flushed in
order before it was acknowledged. Below the recovery point and the newest snapshot nothing is ever cut: a bad batch
there is damage, not a torn tail, and is reported, kept, and never served.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from semel.config import TopicConfig
from semel.host.api import Disk
from semel.log.compaction_swap import finish_swaps
from semel.log.epochs import FILE_NAME as EPOCHS_FILE
from semel.log.epochs import LeaderEpochs, read_epochs
from semel.log.errors import BrokenLog, CorruptSegment
from semel.log.log import IDENTITY_FILE, Log
from semel.log.producers import Producers
from semel.log.segment import LOG_SUFFIX, MAX_RELATIVE_OFFSET, NO_TIMESTAMP, Segment
from semel.log.snapshots import read_snapshot, remove_snapshot, snapshot_offsets, write_snapshot_now
from semel.log.types import Offset, ProducerId
from semel.log.writing_again import make_durable, write_again
from semel.records.batch import HEADER_BYTES, BatchHeader, read_header
from semel.records.control import ControlMarker, read_control
from semel.records.errors import RecordError

logger = logging.getLogger("semel.log")


@dataclass
class Recovered:
    """What a load had to do, for the line in the log and for tests."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    removed_segments: int = 0


def load_log(
    disk: Disk,
    directory: str,
    config: TopicConfig,
    *,
    recovery_point: Offset,
    start_offset: Offset,
    now_ms: int,
    was_clean: bool,
) -> tuple[Log, Recovered]:
    """Opens the log in `directory`. `was_clean`: the last stop was clean, so nothing needs to be scanned."""
    done = Recovered()
    if not disk.exists(directory):
        return Log(disk, directory, config, start_offset=start_offset), done
    finish_swaps(disk, directory)
    names = disk.list_dir(directory)
    bases = sorted(int(name[: -len(LOG_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX))
    if not bases:
        return Log(disk, directory, config, start_offset=start_offset), done
    segments = _open_segments(disk, directory, bases)
    epochs = read_epochs(disk, directory)
    loader = _Loader(disk, directory, config, segments, epochs, recovery_point, start_offset, now_ms, done)
    loader.load(was_clean)
    if not loader.segments:
        return Log(disk, directory, config, start_offset=start_offset), done
    end_offset = loader.segments[-1].next_offset
    if end_offset < recovery_point:
        raise BrokenLog(
            f"{directory} ends at offset {end_offset}, and all below {recovery_point} was durable: its end is lost"
        )
    if was_clean and recovery_point and end_offset > recovery_point:
        # No CRC covers the offset of a batch, and behind the last one there is no neighbour that vouches for it.
        raise BrokenLog(f"{directory} ends at offset {end_offset}, but at the clean stop it ended at {recovery_point}")
    log = Log(
        disk,
        directory,
        config,
        start_offset=min(max(start_offset, segments[0].base_offset), end_offset),
        segments=loader.segments,
        producers=loader.producers,
        epochs=epochs,
        end_offset=end_offset,
    )
    log.epochs.truncate_start(log.start_offset)
    return log, done


def _open_segments(disk: Disk, directory: str, bases: list[Offset]) -> list[Segment]:
    segments = [Segment(disk, directory, base, is_new=False, is_active=base == bases[-1]) for base in bases]
    for before, segment in pairwise(segments):
        if not segment.size_bytes and _reaches(before, segment.base_offset):
            # It was begun when the disk failed, and could not be removed then: the one before it went on.
            logger.warning("%s: removed, it is empty and the segment before it goes on", segment.path)
            segment.remove()
            others = [other for other in segments if other is not segment]
            for other in others:
                other.close()
            return _open_segments(disk, directory, [other.base_offset for other in others])
    return segments


def _reaches(segment: Segment, offset: Offset) -> bool:
    indexed = segment.offset_index.last() if segment.offset_index.is_whole else None
    with suppress(CorruptSegment):  # its torn end
        return any(found.base_offset >= offset for found in segment.heads(0 if indexed is None else indexed[1]))
    return False


class _Loader:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        recovery_point: Offset,
        start_offset: Offset,
        now_ms: int,
        done: Recovered,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.recovery_point = recovery_point
        self.start_offset = start_offset
        # A snapshot is written after the segments below it are durable with their indexes (Log.settle).
        self.settled = max(snapshot_offsets(disk.list_dir(directory)), default=0)
        self.now_ms = now_ms
        self.done = done
        self.producers = Producers()
        self._damaged: set[str] = set()

    def load(self, was_clean: bool) -> None:
        trusted = self._count_trusted(was_clean)
        for number, segment in enumerate(self.segments[:trusted]):
            is_last = number == len(self.segments) - 1
            self._open_trusted(segment, None if is_last else self.segments[number + 1].base_offset)
        if trusted and not self.epochs.entries:
            self._rebuild_epochs(self.segments[:trusted])
        if trusted == len(self.segments):
            self._restore_producers(self.segments[-1].next_offset)
            return
        self._restore_producers(self.segments[trusted].base_offset)
        # Told anew by the batches: the file may still name epochs of batches that a follower has cut off since.
        self.epochs.truncate_end(self.segments[trusted].base_offset)
        self._scan_from(trusted)

    # -- trusted segments

    def _count_trusted(self, was_clean: bool) -> int:
        trusted = len(self.segments)
        if not was_clean:
            trusted = sum(1 for following in self.segments[1:] if following.base_offset <= self.settled)
        for number, segment in enumerate(self.segments[:trusted]):
            if not segment.aborted_index.is_whole:
                # It can only be made anew by following the transactions from an earlier segment on.
                logger.warning("%s: damaged, reading the log again from here", segment.aborted_index.path)
                return number
        return trusted

    def _rebuild_epochs(self, segments: list[Segment]) -> None:
        for segment in segments:
            for _, header, _ in self._batches_over_damage(segment):
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _open_trusted(self, segment: Segment, following_base: Offset | None) -> None:
        """Takes the indexes as they are, and rebuilds them when they cannot be right."""
        try:
            if self._take_indexes(segment, following_base):
                return
        except CorruptSegment as damage:
            logger.error("%s", damage)
        except RecordError as damage:
            logger.error("%s: the batch that its index leads to cannot be read: %s", segment.path, damage)
        logger.warning("%s: indexes are missing or damaged, rebuilding them", segment.path)
        self._rebuild_indexes(segment, following_base)

    def _take_indexes(self, segment: Segment, following_base: Offset | None) -> bool:
        offsets, times = segment.offset_index, segment.time_index
        last_offset, last_time = offsets.last(), times.last()
        limit = following_base if following_base is not None else segment.base_offset + MAX_RELATIVE_OFFSET + 1
        if not (offsets.is_whole and times.is_whole):
            return False
        if last_offset is not None and not (
            segment.base_offset <= last_offset[0] < limit and 0 <= last_offset[1] < segment.size_bytes
        ):
            return False
        segment.next_offset = limit
        if following_base is None:
            segment.next_offset = segment.base_offset
            for found in segment.heads(0 if last_offset is None else last_offset[1]):
                segment.next_offset = found.last_offset + 1
        if last_time is not None:
            if not self._carries(segment, *last_time):
                return False
            segment.max_timestamp_ms, segment.max_timestamp_offset = last_time
        elif segment.size_bytes:
            return False
        if following_base is None and segment.size_bytes:
            first = read_header(segment.file.read_at(0, HEADER_BYTES))
            segment.first_timestamp_ms = first.max_timestamp
        return True

    def _carries(self, segment: Segment, timestamp_ms: int, offset: Offset) -> bool:
        """Whether the batch that ends at `offset` has this timestamp: retention by age goes by it."""
        found = segment.locate(offset)
        if found is None or found.last_offset != offset:
            return False
        return read_header(segment.file.read_at(found.position, HEADER_BYTES)).max_timestamp == timestamp_ms

    def _rebuild_indexes(self, segment: Segment, following_base: Offset | None) -> None:
        """Reads a trusted segment. Damage is reported and stepped over: its bytes stay, and are never served. What was
        made of a damaged segment is for this run only: the next one may find it mended."""
        segment.reset_for_scan()
        limit = segment.base_offset + MAX_RELATIVE_OFFSET + 1 if following_base is None else following_base
        for position, header, _ in self._batches_over_damage(segment):
            if segment.next_offset <= header.base_offset <= header.last_offset < limit:
                segment.note_batch(header, position, self.config.index_interval_bytes)
            else:
                logger.error("%s", CorruptSegment(segment.path, position, header.base_offset, "its offsets are wrong"))
                self._damaged.add(segment.path)
        if following_base is not None:
            segment.next_offset = following_base
            if segment.path not in self._damaged:
                segment.seal()
                segment.flush_now()

    def _batches_over_damage(self, segment: Segment) -> list[tuple[int, BatchHeader, ControlMarker | None]]:
        found: list[tuple[int, BatchHeader, ControlMarker | None]] = []
        position = 0
        while position < segment.size_bytes:
            try:
                for at, header, batch in segment.batches(position):
                    found.append((at, header, _marker(header, batch)))
                    position = at + header.size_bytes
                break
            except CorruptSegment as damage:
                logger.error("%s", damage)
                self._damaged.add(segment.path)
                damaged = self._header_at(segment, damage.position)
                if damaged is None:
                    raise BrokenLog(f"{damage}: and the batch after it cannot be found") from damage
                found.append((damage.position, damaged, None))
                position = damage.position + damaged.size_bytes
        return found

    def _header_at(self, segment: Segment, position: int) -> BatchHeader | None:
        """The header of a damaged batch, if it still says where the next one begins."""
        try:
            header = read_header(segment.file.read_at(position, HEADER_BYTES))
        except RecordError:
            return None
        end = position + header.size_bytes
        if end == segment.size_bytes:
            return header
        try:
            following = read_header(segment.file.read_at(end, HEADER_BYTES))
        except RecordError:
            return None
        return header if following.base_offset == header.next_offset else None

    # -- producers

    def _restore_producers(self, end: Offset) -> None:
        """From the newest usable snapshot at or below `end`, and the batches between it and `end`."""
        offsets = [o for o in snapshot_offsets(self.disk.list_dir(self.directory)) if o <= end]
        begin = self.segments[0].base_offset
        for offset in reversed(offsets):
            rows = read_snapshot(self.disk, self.directory, offset)
            if rows is not None:
                self.producers.load(rows)
                begin = offset
                break
        if begin >= end:
            return
        for segment in self.segments:
            if segment.base_offset >= end or segment.next_offset <= begin:
                continue
            for _, header, marker in self._batches_over_damage(segment):
                if header.base_offset >= begin and header.is_idempotent:
                    self.producers.replay(header, marker, self.now_ms)

    # -- untrusted segments

    @property
    def durable_offset(self) -> Offset:
        """Everything below was durable once, so a gap there was made by compaction or retention, not by power loss."""
        return max(self.recovery_point, self.settled)

    def _scan_from(self, first: int) -> None:
        expected = self.segments[first - 1].next_offset if first else self.start_offset
        rows = self.producers.rows()
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            if number > first and segment.base_offset < expected:
                raise BrokenLog(f"{segment.path} begins before the segment in front of it ends (offset {expected})")
            if segment.base_offset > max(expected, self.durable_offset):
                logger.warning("%s: offsets from %d on are missing before it", segment.path, expected)
                self._remove_later(number)
                break
            rows = self.producers.rows()
            limit = segment.base_offset + MAX_RELATIVE_OFFSET + 1
            if number + 1 < len(self.segments):
                limit = min(limit, self.segments[number + 1].base_offset)
            is_whole = self._scan(segment, limit)
            expected = segment.next_offset
            if not is_whole:
                # Later segments hold only what came after the torn batch: none of it was acknowledged.
                self._remove_later(number + 1)
                break
        self._make_durable(first, rows)

    def _make_durable(self, first: int, rows: dict[ProducerId, bytes]) -> None:
        """What was found is now the log: it is served at once, so it has to be durable first. The snapshot `rows` of
        the last segment's begin comes last, as when a segment is settled."""
        for segment in self.segments[first:-1]:
            segment.seal()
        for segment in self.segments[first:]:
            segment.write_indexes()
            segment.flush_now()
        make_durable(self.disk, f"{self.directory}/{IDENTITY_FILE}")
        end = self.segments[-1].next_offset if self.segments else self.start_offset
        snapshots = self._drop_snapshots_after(end)
        self.epochs.truncate_end(end)
        self.disk.sync_dir_now(self.directory)
        self.disk.sync_dir_now(self.directory.rpartition("/")[0])
        if len(self.segments) > 1 and self.segments[-1].base_offset not in snapshots:
            if self.epochs.is_dirty:
                self.disk.replace_file_now(f"{self.directory}/{EPOCHS_FILE}", self.epochs.encode())
                self.epochs.is_dirty = False
            write_snapshot_now(self.disk, self.directory, self.segments[-1].base_offset, rows)

    def _scan(self, segment: Segment, limit: Offset) -> bool:
        """Reads every batch of a segment, all below `limit`; cuts it where the first torn one begins."""
        segment.reset_for_scan()
        segment.aborted_index.clear()
        scratch = Log(self.disk, self.directory, self.config, producers=self.producers)
        position = 0
        doubtful_from: int | None = None
        torn: CorruptSegment | None = None
        is_damaged = False
        while position < segment.size_bytes and torn is None:
            try:
                for at, header, batch in segment.batches(position):
                    if not self._follows(segment, header) or header.last_offset >= limit:
                        what = f"offset {segment.next_offset} comes next"
                        torn = CorruptSegment(segment.path, at, header.base_offset, what)
                        break
                    self._take(scratch, segment, at, header, _marker(header, batch))
                    position = at + header.size_bytes
                    if doubtful_from is None and header.next_offset > self.recovery_point:
                        doubtful_from = at
                else:
                    break
            except CorruptSegment as damage:
                damaged = self._header_at(segment, damage.position)
                if damaged is not None and damaged.next_offset <= self.durable_offset:
                    logger.error("%s: it was durable, so it stays, unserved", damage)
                    self._take(scratch, segment, damage.position, damaged, None)
                    position = damage.position + damaged.size_bytes
                    is_damaged = True
                else:
                    torn = damage
        self.done.scanned_bytes += position
        if torn is not None:
            if segment.next_offset < self.durable_offset:
                raise BrokenLog(f"{torn}: all below offset {self.durable_offset} was durable, so nothing is cut")
            self.done.cut_bytes += segment.size_bytes - position
            logger.warning("%s: cutting %d unacknowledged bytes", torn, segment.size_bytes - position)
            segment.truncate(position)
        if doubtful_from is not None:
            write_again(segment.file, doubtful_from)
        if not is_damaged:
            segment.trust_all()
        return torn is None

    def _follows(self, segment: Segment, header: BatchHeader) -> bool:
        # A follower appends what compaction has left of its leader's log, gaps and all.
        if header.base_offset >= self.durable_offset and not self.config.compacts:
            return header.base_offset == segment.next_offset
        return header.base_offset >= segment.next_offset

    def _take(
        self, scratch: Log, segment: Segment, position: int, header: BatchHeader, marker: ControlMarker | None
    ) -> None:
        segment.note_batch(header, position, self.config.index_interval_bytes)
        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.is_idempotent:
            ended = self.producers.replay(header, marker, self.now_ms)
            if ended is not None and ended.aborted:
                scratch.note_aborted(segment, ended)

    def _remove_later(self, first: int) -> None:
        for segment in self.segments[first:]:
            logger.warning("%s: removed, it lies after a torn batch", segment.path)
            self.done.removed_segments += 1
            self.done.cut_bytes += segment.size_bytes
            segment.remove()
        del self.segments[first:]

    def _drop_snapshots_after(self, end: Offset) -> list[Offset]:
        offsets = snapshot_offsets(self.disk.list_dir(self.directory))
        for offset in offsets:
            if offset > end:
                remove_snapshot(self.disk, self.directory, offset)
        return [offset for offset in offsets if offset <= end]


def _marker(header: BatchHeader, batch: memoryview) -> ControlMarker | None:
    if not header.is_control:
        return None
    try:
        return read_control(batch, header)
    except RecordError:
        return None


__all__ = ["NO_TIMESTAMP", "Recovered", "load_log"]
