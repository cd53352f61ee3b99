"""From the files of one partition to a Log: what a start finds, cuts and rebuilds.

Segments that a producer snapshot follows are durable with their indexes, and are trusted: their files are held against
the inventory, and each range of batches against its CRCs when it is first read. The others are read batch by batch:
indexes, producers and epochs are rebuilt.

Where a batch cannot be read, one of three things has happened, and only the last one is put right here:
- Something durable is gone: below the recovery point, the newest snapshot or the inventory's end. DataMissing.
- Only the process was killed since that segment was written (`is_same_boot`), so nothing is lost that was written; but
  valid batches follow. That is damage, too. DataMissing, and the bad batch is kept aside.
- A write was torn, by a kill at the very end, or by a power loss anywhere in what was not flushed. The log ends there;
  nothing behind that was acknowledged as durable. What is cut is kept aside.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from semel.config import TopicConfig
from semel.host.api import Disk
from semel.log.agreement import Agreement
from semel.log.batch_search import next_whole_batch
from semel.log.compaction_swap import finish_swaps
from semel.log.epochs import FILE_NAME as EPOCHS_FILE
from semel.log.epochs import LeaderEpochs, read_epochs
from semel.log.errors import BrokenLog, CorruptSegment, DataMissing
from semel.log.inspection.scan import scan
from semel.log.inventory import Inventory
from semel.log.kept_aside import CUT, DAMAGED, keep_aside, keep_file_aside
from semel.log.log import IDENTITY_FILE, Log
from semel.log.producers import Producers
from semel.log.segment import LOG_SUFFIX, MAX_RELATIVE_OFFSET, Segment
from semel.log.snapshots import read_snapshot, remove_snapshot, snapshot_offsets, write_snapshot_now
from semel.log.trusted_segments import batches_over_damage, marker_of, open_trusted, rebuild_indexes
from semel.log.types import Offset, ProducerId
from semel.log.writing_again import make_durable, write_again
from semel.records.batch import BatchHeader
from semel.records.control import ControlMarker

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
    is_same_boot: bool = False,
    is_start_sure: bool = True,
    inventory: Inventory | None = None,
) -> tuple[Log, Recovered]:
    """Opens the log in `directory`; DataMissing if not all is there. `was_clean`: the last stop was clean, so nothing
    needs to be scanned. `is_same_boot`: whatever was written to this log is in its files, or was made durable before.
    `is_start_sure`: whoever noted where the log begins has a checksum. `inventory`: what the files were, if that still
    counts."""
    done = Recovered()
    bases: list[Offset] = []
    if disk.exists(directory):
        finish_swaps(disk, directory)
        names = disk.list_dir(directory)
        bases = sorted(int(name[: -len(LOG_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX))
    agreement = Agreement(disk, directory, inventory, was_clean=was_clean)
    agreement.check_segments_are_there(bases, start_offset)
    if not bases:
        if recovery_point > start_offset:
            raise DataMissing(f"{directory} holds no segment, and all below offset {recovery_point} was durable")
        return Log(disk, directory, config, start_offset=start_offset), done
    segments = _open_segments(disk, directory, bases)
    try:
        agreement.check_lengths(segments)
        loader = _Loader(
            disk, directory, config, segments, recovery_point, start_offset, now_ms, done, agreement, is_same_boot
        )
        loader.is_start_sure = is_start_sure
        loader.load(was_clean)
        end_offset = loader.check_end(was_clean)
    except BaseException:
        for segment in segments:
            segment.close()
        raise
    if not loader.segments:
        return Log(disk, directory, config, start_offset=start_offset, producers=loader.producers), done
    log = Log(
        disk,
        directory,
        config,
        start_offset=max(start_offset, segments[0].base_offset),
        segments=loader.segments,
        producers=loader.producers,
        epochs=loader.epochs,
        end_offset=end_offset,
    )
    log.epochs.truncate_start(log.start_offset)
    agreement.check_epochs(log)
    agreement.hand_over(log)
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
        recovery_point: Offset,
        start_offset: Offset,
        now_ms: int,
        done: Recovered,
        agreement: Agreement,
        is_same_boot: bool,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.segments = list(segments)
        self.recovery_point = recovery_point
        self.start_offset = start_offset
        self.now_ms = now_ms
        self.done = done
        self.agreement = agreement
        self.is_same_boot = is_same_boot
        self.is_start_sure = True
        # A snapshot is written after the segments below it are durable with their indexes (Log.settle).
        newest_snapshot = max(snapshot_offsets(disk.list_dir(directory)), default=0)
        self.settled = max(newest_snapshot, agreement.end_offset)
        self.producers = Producers()
        self.epochs = LeaderEpochs()

    def load(self, was_clean: bool) -> None:
        trusted = len(self.segments)
        if not was_clean:
            trusted = sum(1 for following in self.segments[1:] if following.base_offset <= self.settled)
            bases = [segment.base_offset for segment in self.segments]
            if self.agreement.grown in bases[:trusted]:
                trusted = bases.index(self.agreement.grown)
        for number, segment in enumerate(self.segments[:trusted]):
            is_last = number == len(self.segments) - 1
            self._open_trusted(segment, None if is_last else self.segments[number + 1].base_offset)
        self._read_epochs(self.segments[:trusted])
        self._mend_aborted(self.segments[:trusted])
        if trusted == len(self.segments):
            self._restore_producers(self.segments[-1].next_offset)
            return
        self._restore_producers(self.segments[trusted].base_offset)
        # Told anew by the batches: the file may still name epochs of batches that a follower has cut off since.
        self.epochs.truncate_end(self.segments[trusted].base_offset)
        self._scan_from(trusted)

    def check_end(self, was_clean: bool) -> Offset:
        """Where the log ends, if that is where it has to."""
        end_offset = self.segments[-1].next_offset if self.segments else self.start_offset
        durable = max(self.recovery_point, self.agreement.end_offset)
        if end_offset < durable:
            raise DataMissing(
                f"{self.directory} ends at offset {end_offset}, and all below {durable} was durable: its end is lost"
            )
        if was_clean and self.recovery_point and end_offset > self.recovery_point:
            # No CRC covers the offset of a batch, and behind the last one there is no neighbour that vouches for it.
            raise DataMissing(
                f"{self.directory} ends at offset {end_offset}, but at the clean stop it ended at {self.recovery_point}"
            )
        if self.start_offset > end_offset and self.segments:
            what = f"{self.directory} ends at offset {end_offset}, but it should begin at {self.start_offset}"
            if not self.is_start_sure:
                raise DataMissing(what)
            logger.warning("%s: it does; what lies between them was deleted before it was durable", what)
            self._remove_all()
            return self.start_offset
        return end_offset

    def _remove_all(self) -> None:
        for segment in self.segments:
            segment.remove()
        self.segments.clear()
        self._drop_snapshots_after(-1)
        self.producers = Producers()
        self.disk.sync_dir_now(self.directory)

    # -- trusted segments

    def _open_trusted(self, segment: Segment, following_base: Offset | None) -> None:
        interval_bytes = self.config.index_interval_bytes
        if self.agreement.fits_indexes(segment):
            if open_trusted(segment, following_base, interval_bytes):
                self.agreement.watch_indexes(segment, following_base, interval_bytes)
                return
        else:
            rebuild_indexes(segment, following_base, interval_bytes)
        self.agreement.made_anew(segment)

    def _read_epochs(self, trusted: list[Segment]) -> None:
        found = read_epochs(self.disk, self.directory)
        self.epochs, unknown = self.agreement.epochs(found, trusted)
        for segment in unknown:
            for _, header, _, _ in batches_over_damage(segment):
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _mend_aborted(self, trusted: list[Segment]) -> None:
        """Makes indexes of aborted transactions anew: by following the transactions from an earlier segment on."""
        wrong = [segment for segment in trusted if not self.agreement.fits_aborted(segment)]
        if not wrong:
            return
        begin = self._load_snapshot_up_to(wrong[0].base_offset)
        scratch = Log(self.disk, self.directory, self.config, producers=self.producers)
        for segment in wrong:
            segment.aborted_index.clear()
        for segment in trusted[: trusted.index(wrong[-1]) + 1]:
            if segment.next_offset <= begin:
                continue
            for _, header, marker, _ in batches_over_damage(segment):
                if header.base_offset >= begin and header.is_idempotent:
                    ended = self.producers.replay(header, marker, self.now_ms)
                    if ended is not None and ended.aborted and segment in wrong:
                        scratch.note_aborted(segment, ended)
        for segment in wrong:
            self.agreement.made_anew(segment)
            segment.aborted_index.write_out()
            segment.aborted_index.flush_now()
        self.disk.sync_dir_now(self.directory)
        self.producers.load({})

    # -- producers

    def _load_snapshot_up_to(self, end: Offset) -> Offset:
        """Takes the newest snapshot at or below `end` that can be believed; what comes after it has to be replayed."""
        for offset in reversed(snapshot_offsets(self.disk.list_dir(self.directory))):
            if offset <= end and self.agreement.fits_snapshot(offset):
                rows = read_snapshot(self.disk, self.directory, offset)
                if rows is not None:
                    self.producers.load(rows)
                    return offset
        return self.segments[0].base_offset

    def _restore_producers(self, end: Offset) -> None:
        """From a snapshot, and the batches between it and `end`."""
        begin = self._load_snapshot_up_to(end)
        if begin >= end:
            return
        for segment in self.segments:
            if segment.base_offset >= end or segment.next_offset <= begin:
                continue
            for _, header, marker, _ in batches_over_damage(segment):
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
                what = f"{segment.path}: offsets from {expected} on are missing before it"
                if self.is_same_boot:
                    raise DataMissing(what, self._make_all_durable(number))
                logger.warning("%s", what)
                self._put_away(number)
                break
            rows = self.producers.rows()
            limit = segment.base_offset + MAX_RELATIVE_OFFSET + 1
            if number + 1 < len(self.segments):
                limit = min(limit, self.segments[number + 1].base_offset)
            is_whole = self._scan(number, segment, limit)
            expected = segment.next_offset
            if not is_whole:
                # Later segments hold only what came after the torn batch: none of it was acknowledged.
                self._put_away(number + 1)
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
                self.agreement.epochs_written(self.epochs)
            write_snapshot_now(self.disk, self.directory, self.segments[-1].base_offset, rows)

    def _scan(self, number: int, segment: Segment, limit: Offset) -> bool:
        """Reads every batch of a segment, all below `limit`; cuts it where the first torn one begins."""
        segment.reset_for_scan()
        segment.aborted_index.clear()
        scratch = Log(self.disk, self.directory, self.config, producers=self.producers)
        position = 0
        doubtful_from: int | None = None
        torn: CorruptSegment | None = None
        try:
            for at, header, batch in segment.batches():
                if not self._follows(segment, header) or header.last_offset >= limit:
                    what = f"offset {segment.next_offset} comes next"
                    torn = CorruptSegment(segment.path, at, header.base_offset, what)
                    break
                self._take(scratch, segment, at, header, marker_of(header, batch))
                position = at + header.size_bytes
                if doubtful_from is None and header.next_offset > self.recovery_point:
                    doubtful_from = at
        except CorruptSegment as damage:
            torn = damage
        self.done.scanned_bytes += position
        if torn is not None:
            self._check_is_torn(number, segment, torn)
            self._cut(segment, torn)
        if doubtful_from is not None:
            write_again(segment.file, doubtful_from)
        segment.trust_all()
        return torn is None

    def _check_is_torn(self, number: int, segment: Segment, torn: CorruptSegment) -> None:
        """Raises DataMissing if the batch at which a scan has ended was not torn when it was written."""
        following = next_whole_batch(segment.file, segment.size_bytes, torn.position + 1)
        is_followed = following < segment.size_bytes or any(later.size_bytes for later in self.segments[number + 1 :])
        if segment.next_offset < self.durable_offset:
            what = f"all below offset {self.durable_offset} was durable, so nothing is cut"
        elif self.is_same_boot and is_followed:
            what = "valid batches follow it, so it is no torn write"
        else:
            return
        kept = keep_aside(self.disk, segment.file, torn.position, following, DAMAGED)
        if kept is not None:
            what += f"; kept as {kept.rpartition('/')[2]} as well"
        raise DataMissing(f"{torn}: {what}", self._make_all_durable(number) if self.is_same_boot else None)

    def _make_all_durable(self, first: int) -> Offset:
        """Where the log ends if damage is passed over. From now on that counts as durable, so that the next start comes
        to the same conclusion, whatever happens to the machine."""
        end = self.durable_offset
        for segment in self.segments[first:]:
            for scanned in scan(segment.file, segment.size_bytes):
                header = scanned.header
                # No CRC covers the offset: only what it can be counts.
                if (
                    scanned.problem is None
                    and header is not None
                    and 0 <= header.base_offset - end < segment.size_bytes
                ):
                    end = header.next_offset
            segment.file.flush_now()
        self.disk.sync_dir_now(self.directory)
        return end

    def _cut(self, segment: Segment, torn: CorruptSegment) -> None:
        cut_bytes = segment.size_bytes - torn.position
        kept = keep_aside(self.disk, segment.file, torn.position, segment.size_bytes, CUT)
        self.disk.sync_dir_now(self.directory)
        where = "they are all zero" if kept is None else f"kept as {kept.rpartition('/')[2]}"
        logger.warning("%s: a torn write, the log is cut there by %d bytes: %s", torn, cut_bytes, where)
        self.done.cut_bytes += cut_bytes
        segment.truncate(torn.position)

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

    def _put_away(self, first: int) -> None:
        """Segments behind a torn batch: nothing in them was acknowledged."""
        for segment in self.segments[first:]:
            self.done.removed_segments += 1
            self.done.cut_bytes += segment.size_bytes
            path = segment.path
            segment.file.close()
            if segment.size_bytes:
                kept = keep_file_aside(self.disk, path, CUT)
                logger.warning("%s: it lies behind a torn batch, kept as %s", path, kept.rpartition("/")[2])
            else:
                self.disk.remove(path)
            for index in (segment.offset_index, segment.time_index, segment.aborted_index):
                index.remove()
        del self.segments[first:]

    def _drop_snapshots_after(self, end: Offset) -> list[Offset]:
        offsets = snapshot_offsets(self.disk.list_dir(self.directory))
        for offset in offsets:
            if offset > end:
                remove_snapshot(self.disk, self.directory, offset)
        return [offset for offset in offsets if offset <= end]


__all__ = ["Recovered", "load_log"]
