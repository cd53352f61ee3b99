"""One segment: a run of record batches in one file, as on the wire, with its three indexes.

Finds batches by offset and by timestamp, hands out file ranges, and never hands out bytes of an earlier run of the
node whose CRCs it has not checked: each range is checked once, when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from semel.host.api import Buffer, Disk
from semel.host.descriptors import is_short
from semel.log.append_kernel import SegmentEnd
from semel.log.errors import BrokenLog, CorruptSegment, Refused
from semel.log.indexes import AbortedIndex, OffsetIndex, TimeIndex
from semel.log.types import Offset
from semel.records.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from semel.records.errors import RecordError
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    from semel.log.unchecked_indexes import UncheckedIndexes

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
ABORTED_INDEX_SUFFIX = ".txnindex"
NO_TIMESTAMP = -1
_SCAN_BYTES = 1 << 20
_LOCATE_BYTES = 8192
_HEAD = Struct(">qiib")
_LAST_DELTA = Struct(">i")
_LAST_DELTA_AT = 23
_MIN_BATCH_LENGTH = HEADER_BYTES - 12
MAX_RELATIVE_OFFSET = (1 << 31) - 1


class Located(NamedTuple):
    """Where a batch stands in its segment."""

    position: int
    size_bytes: int
    base_offset: Offset
    last_offset: Offset


class Segment(SegmentEnd):
    """A segment file and its indexes. The newest one of a log is active and grows; the others are sealed."""

    def __init__(self, disk: Disk, directory: str, base_offset: Offset, *, is_new: bool, is_active: bool) -> None:
        self.base_offset = base_offset
        self._stem = f"{directory}/{base_offset:020d}"
        self._disk = disk
        self.file = disk.open(self._stem + LOG_SUFFIX, create=is_new)
        self.size_bytes = self.file.size()
        self.next_offset = base_offset
        self.offset_index = OffsetIndex(disk, self._stem + INDEX_SUFFIX, base_offset, in_memory=is_active)
        self.time_index = TimeIndex(disk, self._stem + TIME_INDEX_SUFFIX, base_offset, in_memory=is_active)
        self.aborted_index = AbortedIndex(disk, self._stem + ABORTED_INDEX_SUFFIX)
        if is_new:
            # A power loss can leave the indexes of a segment that is no more: they are not this one's.
            self.offset_index.clear()
            self.time_index.clear()
            self.aborted_index.clear()
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp_ms = NO_TIMESTAMP
        self.bytes_since_index = 0
        self.is_removed = False
        # Not held against what was noted of them yet: to be done before anything is looked up in them.
        self.unchecked: UncheckedIndexes | None = None
        # Bytes from here on were written or checked by this process; below, `_checked` says which ranges were.
        self._trusted_from = self.size_bytes
        self._checked: list[tuple[int, int]] = []
        # An offset, and where the first batch stands that reaches it or would: whoever follows the end goes on there.
        self._reached: tuple[Offset, int] = (base_offset, 0)

    @property
    def path(self) -> str:
        return self.file.path

    def append(self, batch: Buffer, header: BatchHeader, index_interval_bytes: int) -> None:
        """Writes a batch whose header carries its final offsets. All of it is there afterwards, or none."""
        self.note_batch(header, self.write([batch]), index_interval_bytes)

    def take_back_write(self, error: OSError) -> NoReturn:
        """Nothing of what could not be written stays. Without a descriptor nothing was."""
        try:
            if not is_short(error):
                self.file.truncate(self.size_bytes)
        except OSError as second:
            raise BrokenLog(f"{self.path} cannot be cut back after a failed write: {second}") from error
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk refused the write: {error.strerror}") from error

    def note_batch(self, header: BatchHeader, position: int, index_interval_bytes: int) -> None:
        """Counts a batch that stands at `position` in: offsets, timestamps, indexes."""
        last_offset = header.base_offset + header.last_offset_delta
        self.note(last_offset, header.max_timestamp, position, header.batch_length + 12, index_interval_bytes)

    def locate(self, offset: Offset) -> Located | None:
        """The first batch that ends at `offset` or later; None when every batch ends before it."""
        reached, position = self._reached
        if reached > offset or self.size_bytes - position > _LOCATE_BYTES:  # else so near that one look finds it
            entry, following = self.offset_index.around(offset)
            likely = self._likely(offset, entry, following)
            if likely is not None:
                return likely
            position = self.believed_position(entry)
        before: Located | None = None
        misplaced: Located | None = None
        for found in self.heads(position):
            if found.last_offset >= self.next_offset:
                raise self._corrupt(found.position, found.base_offset, "its offsets belong to a later segment")
            if found.last_offset >= offset:
                if misplaced is not None and found.base_offset > offset:
                    # Not a gap that compaction left: the batch in between, which claims other offsets, had this one.
                    raise self._corrupt(misplaced.position, misplaced.base_offset, "its offsets run backwards")
                return found
            misplaced = found if before is not None and found.base_offset <= before.last_offset else None
            before = found
        return None

    def _likely(self, offset: Offset, entry: tuple[Offset, int] | None, following: int | None) -> Located | None:
        """The batch that holds `offset`, if it is the next one in the index. It mostly is for who reads on after an
        indexed batch, and where batches are so large that each has an entry."""
        if entry is None or following is None or entry[0] == offset:
            return None
        if entry[0] + 1 != offset and following - entry[1] <= _LOCATE_BYTES:
            return None
        found = self._batch_at(following)
        is_it = found is not None and found.base_offset <= offset <= found.last_offset < self.next_offset
        return found if is_it else None

    def position_after(self, offset: Offset) -> int | None:
        """Where the batches from `offset` on stand, if that is known without a look at any of them, and they need
        none: the last reader of all there was ended there."""
        reached, position = self._reached
        return position if reached == offset and position >= self._trusted_from else None

    def note_reached(self, offset: Offset, position: int) -> None:
        """Somebody has read all batches before `offset`, and they end at `position`."""
        self._reached = (offset, position)

    def believed_position(self, entry: tuple[Offset, int] | None) -> int:
        """Where an entry of the index points. One that does not fit the batch there is damaged: then to the first."""
        if entry is None:
            return 0
        last_offset, position = entry
        return position if self.offset_index.is_ours or self._ends_with(position, last_offset) else 0

    def _ends_with(self, position: int, last_offset: Offset) -> bool:
        found = self._batch_at(position)
        return found is not None and found.last_offset == last_offset

    def _batch_at(self, position: int) -> Located | None:
        """What an index leads to, if that is a batch: a damaged one may lead anywhere."""
        try:
            return next(self.heads(position, HEADER_BYTES), None)
        except (CorruptSegment, OSError):
            return None

    def heads(self, position: int, read_bytes: int = _LOCATE_BYTES) -> Iterator[Located]:
        """Every batch from `position` on, by the first bytes of its header."""
        while position < self.size_bytes:
            block = self.file.read_at(position, min(read_bytes, self.size_bytes - position))
            at = 0
            while at + HEADER_BYTES <= len(block):
                base_offset, length, _, magic = _HEAD.unpack_from(block, at)
                (last_delta,) = _LAST_DELTA.unpack_from(block, at + _LAST_DELTA_AT)
                size = length + 12
                if magic != 2 or length < _MIN_BATCH_LENGTH or position + at + size > self.size_bytes or last_delta < 0:
                    raise self._corrupt(position + at, base_offset, "not a record batch")
                yield Located(position + at, size, base_offset, base_offset + last_delta)
                at += size
            if at == 0:
                raise self._corrupt(position, self.next_offset, "half a batch header at the end of the file")
            position += at

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Every batch from `position` on with its bytes, CRC checked; raises CorruptSegment at the first bad one."""
        while position < self.size_bytes:
            block = memoryview(self.file.read_at(position, min(_SCAN_BYTES, self.size_bytes - position)))
            at = 0
            while at < len(block):
                try:
                    header = read_header(block, at)
                except RecordError as error:
                    if at and len(block) - at < HEADER_BYTES:
                        break
                    raise self._corrupt(position + at, self.next_offset, str(error)) from error
                size = header.batch_length + 12
                if at + size > len(block):
                    if position + at + size > self.size_bytes:
                        raise self._corrupt(
                            position + at, header.base_offset, "the batch runs past the end of the file"
                        )
                    if at:
                        break
                    block = memoryview(self.file.read_at(position, size))
                batch = block[at : at + size]
                if not check_crc(batch, 0, header):
                    raise self._corrupt(position + at, header.base_offset, "CRC-32C does not match")
                yield position + at, header, batch
                at += size
            position += at

    def batches_in_order(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch of a sealed segment, for who writes them anew: offsets, which no CRC covers, are checked too."""
        expected = self.base_offset
        for position, header, batch in self.batches():
            if not expected <= header.base_offset <= header.last_offset < self.next_offset:
                raise self._corrupt(position, header.base_offset, f"its offsets are not from {expected} on")
            expected = header.next_offset
            yield header, batch

    def is_trusted(self, start: int, end: int) -> bool:
        """Whether these bytes were written or checked by this process."""
        if start >= self._trusted_from:
            return True
        end = min(end, self._trusted_from)
        return any(low <= start and end <= high for low, high in self._checked)

    def check_range(self, start: int, end: int) -> int:
        """Checks the CRCs of the batches from `start`; returns where the last good batch that begins before `end` ends.

        A bad batch at `start` raises CorruptSegment; a later one ends the range before it, to be met next time.
        """
        good = start
        expected = self._offset_expected_at(start)
        try:
            for position, header, _ in self.batches(start):
                if position >= end and position > start:
                    break
                following = position + header.batch_length + 12
                if header.base_offset != expected and not self._fits(header, expected, following):
                    raise self._corrupt(position, header.base_offset, "its offsets are not those of its place")
                good, expected = following, header.next_offset
        except CorruptSegment:
            if good == start:
                raise
        self._remember_checked(start, good)
        return good

    def _offset_expected_at(self, position: int) -> Offset:
        """The offset after the batch before `position`."""
        entry = self.offset_index.before_position(position)
        at = entry[1] if entry is not None and self._ends_with(entry[1], entry[0]) else 0
        expected = self.base_offset
        for found in self.heads(at):
            if found.position >= position:
                break
            expected = found.last_offset + 1
        return expected

    def _fits(self, header: BatchHeader, expected: Offset, following: int) -> bool:
        """Offsets stand outside of the CRC, so their neighbours vouch for them: a batch that is not next to the one
        before it must be next to the one after it, or (compaction leaves gaps) lie between the two."""
        following_offset = self.next_offset
        if following < self.size_bytes:
            try:
                following_offset = read_header(self.file.read_at(following, HEADER_BYTES)).base_offset
            except RecordError:
                return header.base_offset >= expected
        return (
            header.next_offset == following_offset
            or expected <= header.base_offset < header.next_offset <= following_offset
        )

    def trust_all(self) -> None:
        """Recovery has read every batch."""
        self._trusted_from = 0
        self._checked.clear()

    def _remember_checked(self, start: int, end: int) -> None:
        merged: list[tuple[int, int]] = []
        for low, high in self._checked:
            if high < start or low > end:
                merged.append((low, high))
            else:
                start, end = min(low, start), max(high, end)
        merged.append((start, end))
        # Scattered reads of an old segment stay cheap: the oldest ranges are forgotten and checked again if asked for.
        self._checked = merged[-64:]

    def find_timestamp(self, timestamp_ms: int, from_offset: Offset) -> tuple[BatchHeader, memoryview] | None:
        """The first batch, not wholly before `from_offset`, that holds a record of `timestamp_ms` or later."""
        if timestamp_ms > self.max_timestamp_ms:
            return None
        if self.unchecked is not None:
            self.unchecked.check_now()
        position = self.believed_position(
            self.offset_index.floor(max(self.time_index.floor_offset(timestamp_ms), from_offset))
        )
        for _, header, batch in self.batches(position):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= from_offset:
                return header, batch
        return None

    def upper_offset(self, end_position: int) -> Offset:
        """An offset that no batch before `end_position` reaches."""
        if end_position >= self.size_bytes:
            return self.next_offset
        bound = self.offset_index.offset_at_or_after(end_position)
        return self.next_offset if bound is None else bound

    def seal(self) -> None:
        """Nothing will be appended any more: the indexes go to their files and out of memory."""
        self.write_indexes()  # all of them first: if the disk is full, appends can go on
        self.offset_index.seal()
        self.time_index.seal()

    def write_indexes(self) -> None:
        self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
        self.offset_index.write_out()
        self.time_index.write_out()
        self.aborted_index.write_out()

    def truncate(self, size_bytes: int) -> None:
        """Cuts the file. The indexes are rebuilt by the caller."""
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes
        self._trusted_from = min(self._trusted_from, size_bytes)
        self._reached = (self.base_offset, 0)

    def reset_for_scan(self) -> None:
        """Forgets offsets, times and their indexes: `note_batch` of every batch follows. Which transactions aborted is
        told by the segments before this one too, so that index is the caller's."""
        self.next_offset = self.base_offset
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.first_timestamp_ms = NO_TIMESTAMP
        self.bytes_since_index = 0
        self.offset_index.clear()
        self.time_index.clear()

    async def flush(self) -> None:
        await self.file.flush()

    async def flush_indexes(self) -> None:
        await self.offset_index.flush()
        await self.time_index.flush()
        await self.aborted_index.flush()

    def flush_now(self) -> None:
        self.file.flush_now()
        self.offset_index.flush_now()
        self.time_index.flush_now()
        self.aborted_index.flush_now()

    def close(self) -> None:
        self.file.close()
        self.offset_index.close()
        self.time_index.close()
        self.aborted_index.close()

    def remove(self) -> None:
        """Takes the files away. Ranges that are being sent keep their bytes until they are released."""
        self.is_removed = True
        self.file.close()
        self._disk.remove(self.path)
        self.offset_index.remove()
        self.time_index.remove()
        self.aborted_index.remove()

    def _corrupt(self, position: int, offset: Offset, what: str) -> CorruptSegment:
        return CorruptSegment(self.path, position, offset, what)
