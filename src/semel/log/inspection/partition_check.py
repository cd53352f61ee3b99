"""Checks the log of one partition: one pass over its segments, with everything that is derived from them beside it.

Reads in pieces, keeps what a node keeps of its producers, and changes nothing. What a crash may leave behind, and the
next start puts in order, is told apart from damage by what is provably durable: as recovery does it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from semel.log.batch_search import ReadableFile
from semel.log.inspection.aborted_check import AbortedCheck
from semel.log.inspection.epoch_check import EpochCheck
from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.findings import Findings, Kind
from semel.log.inspection.index_check import IndexCheck
from semel.log.inspection.producer_check import ProducerCheck
from semel.log.inspection.scan import Scanned, headers, marker_of, scan
from semel.log.inspection.sequence_check import SequenceCheck
from semel.log.inspection.surroundings import ALONE, Surroundings
from semel.log.producers import Producers
from semel.log.segment import ABORTED_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from semel.log.snapshots import SNAPSHOT_SUFFIX
from semel.log.types import Offset
from semel.records.batch import BatchHeader, walk
from semel.records.control import ControlType
from semel.records.errors import RecordError

Progress = Callable[[int], None]
_PROGRESS_BYTES = 8 << 20


def _silent(_: int) -> None:
    """Nobody watches."""


def check_partition(
    partition: PartitionFiles,
    findings: Findings,
    around: Surroundings = ALONE,
    *,
    opens_records: bool = False,
    progress: Progress = _silent,
) -> Offset | None:
    """Adds what is wrong to `findings`; returns where the log ends, if that can be told. `opens_records`: each record
    is read too, not only the CRC over them."""
    _check_swap(partition, findings)
    if not partition.bases:
        findings.add(Kind.NO_LOG, partition.directory, "there is no segment in it")
        return None
    return _PartitionCheck(partition, findings, around, opens_records, progress).run()


def _check_swap(partition: PartitionFiles, findings: Findings) -> None:
    if partition.manifest_problem is not None:
        path = partition.paths["compaction-swap.json"]
        findings.add(Kind.BAD_MANIFEST, path, f"it cannot be read: {partition.manifest_problem}")
    elif partition.is_swapping:
        findings.add(Kind.SWAP_UNDER_WAY, partition.directory, "a compaction was decided and not yet put in place")


def _orphans(partition: PartitionFiles) -> list[tuple[Offset, str]]:
    """Indexes without their segment, by its first offset."""
    bases = set(partition.bases)
    suffixes = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_INDEX_SUFFIX)
    return sorted((base, suffix) for suffix in suffixes for base in partition.offsets(suffix) if base not in bases)


def _counting(bases: list[Offset], start_offset: Offset | None) -> list[Offset]:
    """The segments that are not wholly below the start of the log. The others are about to be removed, and a power loss
    may bring some of their files back and others not."""
    return bases[max(bisect_right(bases, start_offset or 0) - 1, 0) :]


def _paired(scanned: Iterable[Scanned]) -> Iterator[tuple[Scanned, Scanned | None]]:
    """Each with the one after it."""
    before: Scanned | None = None
    for one in scanned:
        if before is not None:
            yield before, one
        before = one
    if before is not None:
        yield before, None


class _PartitionCheck:
    def __init__(
        self,
        partition: PartitionFiles,
        findings: Findings,
        around: Surroundings,
        opens_records: bool,
        progress: Progress,
    ) -> None:
        self.partition = partition
        self.findings = findings
        self.around = around
        self.opens_records = opens_records
        self.progress = progress
        self.bases = _counting(partition.bases, around.start_offset)
        self.expected: Offset = self.bases[0]
        # Where the last gap ended: below it, batches may be gone for a good reason.
        self.gap_end: Offset = self.bases[0]
        self.gaps = 0
        self.orphans = _orphans(partition)
        self.first_gap: Offset | None = None
        self.blind_from: Offset | None = None
        self.producers = Producers()
        self.snapshots = ProducerCheck(partition, self.producers, self.may_be_gone, self.bases[-1], findings)
        self.aborted = AbortedCheck(partition, self.may_be_gone, findings)
        self.epochs = EpochCheck(partition, around.start_offset, findings)
        self.sequences = SequenceCheck(self.producers, findings)
        self.settled = max(self.snapshots.offsets, default=0)
        self.was_clean = self._was_clean()
        self.durable = max(around.recovery_point or 0, self.settled)
        self.trusted = len(self.bases)
        if not self.was_clean:
            self.trusted = sum(1 for following in self.bases[1:] if following <= self.settled)
        self._unreported_bytes = 0

    def may_be_gone(self, offset: Offset) -> bool:
        return offset < self.gap_end

    def _was_clean(self) -> bool:
        """A clean stop leaves a snapshot at the end of the log."""
        if self.around.is_running:
            return False
        if self.around.was_clean is not None:
            return self.around.was_clean
        file = self.partition.files.open(self.partition.path(self.bases[-1], LOG_SUFFIX))
        try:
            end = self.bases[-1]
            for _, header in headers(file, file.size()):
                end = header.next_offset
        finally:
            file.close()
        return self.settled == end

    def run(self) -> Offset | None:
        self._check_start()
        self.snapshots.begin(self.bases[0])
        for number, base in enumerate(self.bases):
            limit = self.bases[number + 1] if number + 1 < len(self.bases) else None
            try:
                file = self.partition.files.open(self.partition.path(base, LOG_SUFFIX))
            except FileNotFoundError:
                path = self.partition.path(base, LOG_SUFFIX)
                self.findings.add(Kind.VANISHED, path, "it was removed meanwhile", offset=base)
                self._go_blind(base)
                continue
            try:
                self._segment(file, number, base, limit)
            finally:
                file.close()
        self._finish()
        return self.expected if self.blind_from is None else None

    def _check_start(self) -> None:
        start = self.around.start_offset
        is_semel = bool(self.partition.offsets(".window"))
        if start is not None and start < self.bases[0] and is_semel:
            path = self.partition.path(self.bases[0], LOG_SUFFIX)
            what = f"the log begins with it, but it should begin at offset {start}: segments before it are missing"
            self.findings.add(Kind.MISSING_SEGMENT, path, what, offset=start)

    def _segment(self, file: ReadableFile, number: int, base: Offset, limit: Offset | None) -> None:
        size = file.size()
        is_trusted = number < self.trusted
        self._enter(file.path, number, base)
        indexes = IndexCheck(self.partition, base, self.findings, is_trusted=is_trusted)
        is_whole, is_foreign = True, False
        for scanned, following in _paired(scan(file, size)):
            self._count(scanned.end - scanned.position)
            if scanned.problem is not None or scanned.header is None:
                is_whole = False
                self._bad(file.path, number, size, scanned, following)
                after = None if following is None or following.header is None else following.header.base_offset
                indexes.skip(scanned.position, scanned.end, after)
                continue
            if is_foreign:
                continue
            header = scanned.header
            if number >= self.trusted and self.expected >= self.durable and header.base_offset != self.expected:
                # Of a torn write the first bytes may be missing: no CRC covers the offset.
                is_whole = False
                torn = scanned._replace(problem=f"it says offset {header.base_offset}, not {self.expected}")
                self._bad(file.path, number, size, torn, following)
                continue
            placed = self._placed(file.path, base, limit, scanned, header, following)
            if placed is None:
                is_foreign, is_whole = True, False
                self._go_blind(base)
                continue
            next_header = None if following is None else following.header
            indexes.batch(scanned.position, placed)
            self.epochs.batch(file.path, scanned.position, placed, next_header, is_trusted=is_trusted)
            self._replay(file.path, scanned, placed)
        if not is_whole and limit is not None:
            self.expected = limit
        indexes.finish(size, self.expected, is_whole=is_whole)
        self.aborted.finish_segment(base, self.expected, is_trusted=is_trusted, blind_from=self.blind_from)

    def _enter(self, path: str, number: int, base: Offset) -> None:
        if base > max(self.expected, self.durable) and number >= self.trusted:
            what = f"offsets {self.expected} to {base - 1} are missing before it"
            self.findings.add(Kind.WILL_BE_CUT, path, what, offset=base)
            self._go_blind(self.expected)
        elif base > self.expected:
            self._gap_before(path, base)
        elif base < self.expected:
            what = f"it begins before the segment in front of it ends, at offset {self.expected}"
            self.findings.add(Kind.WRONG_SEGMENT, path, what, offset=base)
        self.expected = max(base, self.expected)

    def _gap_before(self, path: str, base: Offset) -> None:
        """Between two segments. An index that stands there alone tells that a segment is missing."""
        lost = [orphan for orphan in self.orphans if self.expected <= orphan[0] < base]
        for start in sorted({start for start, _ in lost}):
            suffixes = " and ".join(suffix for orphan, suffix in lost if orphan == start)
            what = f"the segment is missing, its {suffixes} still there"
            self.findings.add(Kind.MISSING_SEGMENT, self.partition.path(start, LOG_SUFFIX), what, offset=start)
        if lost:
            self.orphans = [orphan for orphan in self.orphans if orphan not in lost]
            self.gap_end = base
        else:
            self._gap(path, None, self.expected, base)

    def _placed(
        self,
        path: str,
        base: Offset,
        limit: Offset | None,
        scanned: Scanned,
        header: BatchHeader,
        following: Scanned | None,
    ) -> BatchHeader | None:
        """The header with the offset of its place: no CRC covers it, so its neighbours vouch for it. None when the
        whole file seems to belong elsewhere."""
        offset, expected = header.base_offset, self.expected
        if offset != expected:
            place_end = expected + header.last_offset_delta + 1
            after = limit if following is None else None if following.header is None else following.header.base_offset
            if following is None and limit is None and self.was_clean:
                after = self.durable
            if after == place_end or (offset < expected and scanned.position):
                what = f"the batch says offset {offset}, but {expected} is that of its place"
                self.findings.add(Kind.WRONG_OFFSET, path, what, position=scanned.position, offset=expected)
                header = header._replace(base_offset=expected)
            elif offset < base or (limit is not None and header.last_offset >= limit):
                limit_text = "" if limit is None else f" to {limit - 1}"
                what = f"it holds offset {offset}, but by its name it has those from {base}{limit_text}"
                self.findings.add(Kind.WRONG_SEGMENT, path, what, position=scanned.position, offset=offset)
                return None
            elif offset > expected:
                self._gap(path, scanned.position, expected, offset)
        self.expected = header.next_offset
        return header

    def _gap(self, path: str, position: int | None, first: Offset, end: Offset) -> None:
        self.gap_end = end
        around = self.around
        if self.blind_from is not None:
            return
        if around.cleaned_to is None and around.compacts is False:
            what = f"offsets {first} to {end - 1} are missing"
            self.findings.add(Kind.MISSING_OFFSETS, path, what, position=position, offset=first)
        elif around.cleaned_to is None or end > around.cleaned_to:
            self.gaps += 1
            self.first_gap = first if self.first_gap is None else self.first_gap

    def _bad(self, path: str, number: int, size: int, scanned: Scanned, following: Scanned | None) -> None:
        is_tail = following is None and number == len(self.bases) - 1
        first = scanned.header.base_offset if scanned.header is not None else self.expected
        what = scanned.problem or "it cannot be read"
        kind = Kind.BAD_BATCH if scanned.header is not None else Kind.UNREADABLE
        if is_tail and self.around.is_running:
            kind = Kind.GROWING_TAIL
        elif number >= self.trusted and self.expected >= self.durable:
            if is_tail or not self.around.is_same_boot:
                kind = Kind.TORN_TAIL if is_tail else Kind.WILL_BE_CUT
            what += f"; {size - scanned.position} bytes from here to the end of the segment"
        elif scanned.header is None and following is not None:
            what += f"; the next whole batch begins at byte {scanned.end}"
        self.findings.add(kind, path, what, position=scanned.position, offset=first)
        if is_tail and kind in (Kind.GROWING_TAIL, Kind.TORN_TAIL):
            return
        self._go_blind(self.expected)
        if scanned.header is not None and scanned.header.base_offset == self.expected:
            self.expected = scanned.header.next_offset
        elif following is not None and following.header is not None:
            self.expected = max(self.expected, following.header.base_offset)

    def _go_blind(self, offset: Offset) -> None:
        """What was derived from the log cannot be compared from here on."""
        if self.blind_from is None:
            # Snapshots up to here can still be judged.
            self.snapshots.reach(offset)
            self.blind_from = self.snapshots.blind_from = offset

    def _replay(self, path: str, scanned: Scanned, header: BatchHeader) -> None:
        if self.snapshots.next_offset <= header.base_offset:
            self.snapshots.reach(header.base_offset)
        if self.opens_records:
            self._open(path, scanned, header)
        if header.producer_id < 0:
            return
        if self.blind_from is None and not header.is_control:
            self.sequences.batch(path, scanned.position, header, self.gap_end)
        marker = marker_of(header, scanned.batch) if header.is_control else None
        ended = self.producers.replay(header, marker, 0)
        if ended is not None:
            self.aborted.ended(ended, self.producers.oldest_open_offset())
            self.producers.first_unstable_offset(header.next_offset)  # lets go of what it remembers as just ended
        elif marker is not None and marker.kind == ControlType.ABORT:
            self.aborted.bare_abort(header.producer_id, header.base_offset)

    def _open(self, path: str, scanned: Scanned, header: BatchHeader) -> None:
        if scanned.batch is None or header.record_count == 0:
            return
        try:
            walk(scanned.batch, header, compacted=True)
        except RecordError as error:
            what = str(error)
            self.findings.add(Kind.BAD_RECORDS, path, what, position=scanned.position, offset=header.base_offset)

    def _finish(self) -> None:
        end = self.expected
        for base, suffix in self.orphans:
            path = self.partition.path(base, suffix)
            self.findings.add(Kind.LEFT_OVER, path, "an index without its segment", offset=base)
        self.snapshots.finish(end)
        self.epochs.finish(end, was_clean=self.was_clean)
        self._count(0, is_last=True)
        point = self.around.recovery_point
        newest = self.partition.path(self.bases[-1], LOG_SUFFIX)
        ended_here = bool(self.around.was_clean) and self.settled == end  # then the checkpoint is wrong, not the log
        if point is not None and point > end and self.blind_from is None and not (ended_here or self.around.is_running):
            what = f"the log ends at offset {end}, but everything below {point} was durable"
            self.findings.add(Kind.SHORT_LOG, newest, what, offset=end)
        has_records = end > self.bases[0]
        if self.around.was_clean and has_records and self.blind_from is None and end not in self.snapshots.offsets:
            path = self.partition.path(end, SNAPSHOT_SUFFIX)
            self.findings.add(Kind.MISSING_SNAPSHOT, path, "a clean stop writes one, and it is missing", offset=end)
        if self.gaps:
            what = f"{self.gaps} gaps between offsets, the first at {self.first_gap}"
            self.findings.add(Kind.COMPACTION_GAPS, self.partition.directory, what, offset=self.first_gap)

    def _count(self, done_bytes: int, *, is_last: bool = False) -> None:
        self._unreported_bytes += done_bytes
        if self._unreported_bytes >= _PROGRESS_BYTES or is_last:
            self.progress(self._unreported_bytes)
            self._unreported_bytes = 0
