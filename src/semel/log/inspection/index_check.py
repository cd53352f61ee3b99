"""Follows the offset and time index of one segment beside its batches, and says where they part.

Entries come in the order of the batches, so one step through both is enough. An index of a segment that the next start
reads again anyway is expected to be short, empty or ahead of the log after a crash: only contradictions count there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

from semel.log.indexes import OffsetIndex, TimeIndex
from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.findings import Findings, Kind
from semel.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from semel.log.types import Offset
from semel.records.batch import LENGTH_FIELD_END, BatchHeader

_CHUNK_ENTRIES = 1 << 16
_NO_TIMESTAMP = -1
# Far more than index.interval.bytes lets expect. Nearer to it nothing can be said: each start begins to count anew.
_UNUSUAL_SPACING = 8
_DEFAULT_INTERVAL_BYTES = 4096


class _Entry(NamedTuple):
    """`place` grows with the log: a position in the segment, or an offset. `at` is where the entry itself stands."""

    value: int
    place: int
    at: int


class _Entries:
    """The entries of an index file, one by one; zeros at its end are room that was reserved, not entries."""

    def __init__(self, partition: PartitionFiles, base: Offset, suffix: str) -> None:
        self.struct = (OffsetIndex if suffix == INDEX_SUFFIX else TimeIndex).entry
        self.path = partition.path(base, suffix)
        self.is_there = partition.has(base, suffix)
        self.odd_bytes = 0
        self.zeros = 0
        self._entries = self._read(partition) if self.is_there else iter(())
        self._ahead: list[_Entry] = []
        self._last_place = -1
        self.misplaced: list[_Entry] = []
        self.head: _Entry | None = None
        self.advance()

    def _read(self, partition: PartitionFiles) -> Iterator[_Entry]:
        try:
            file = partition.files.open(self.path)
        except FileNotFoundError:
            return  # a running node has removed it
        try:
            size, width = file.size(), self.struct.size
            self.odd_bytes = size % width
            end = size - self.odd_bytes
            for position in range(0, end, _CHUNK_ENTRIES * width):
                chunk = file.read_at(position, min(_CHUNK_ENTRIES * width, end - position))
                whole = chunk[: len(chunk) - len(chunk) % width]
                for at, (value, place) in zip(count(position, width), self.struct.iter_unpack(whole), strict=False):
                    if value or place:
                        yield _Entry(value, place, at)
                    elif at:  # the first one may be true: time 0 at the first offset
                        self.zeros += 1
        finally:
            file.close()

    def advance(self) -> None:
        """The next entry becomes the head. One that is out of order is put aside, or it would hide those after it."""
        if self.head is not None:
            self._last_place = self.head.place
        self._look_ahead()
        while len(self._ahead) > 1 and self._ahead[1].place < self._ahead[0].place:
            later = self._ahead[2].place if len(self._ahead) > 2 else -1
            # The second is wrong if the third goes on from the first, or if it does not go on from the one before.
            is_second = self._ahead[0].place < later or self._ahead[1].place <= self._last_place
            self.misplaced.append(self._ahead.pop(1 if is_second else 0))
            self._look_ahead()
        self.head = self._ahead.pop(0) if self._ahead else None

    def _look_ahead(self) -> None:
        self._ahead += islice(self._entries, 3 - len(self._ahead))


class IndexCheck:
    """Give it every batch of the segment in order, then `finish`."""

    def __init__(self, partition: PartitionFiles, base: Offset, findings: Findings, *, is_trusted: bool) -> None:
        self._findings = findings
        self._base = base
        self._is_trusted = is_trusted
        self._is_semel = bool(partition.offsets(".window"))
        self._offsets = _Entries(partition, base, INDEX_SUFFIX)
        self._times = _Entries(partition, base, TIME_INDEX_SUFFIX)
        self._last_time_ms = _NO_TIMESTAMP
        self._max_timestamp_ms = _NO_TIMESTAMP
        self._max_timestamp_offset = base
        self._bytes_since_entry = 0
        self._least_spacing = 0

    def batch(self, position: int, header: BatchHeader) -> None:
        entry = self._offsets.head
        if entry is not None and entry.place <= position:
            self._offset_entries(position, header)
        self._bytes_since_entry += header.batch_length + LENGTH_FIELD_END
        if header.max_timestamp > self._max_timestamp_ms:
            self._max_timestamp_ms = header.max_timestamp
            self._max_timestamp_offset = header.base_offset + header.last_offset_delta
        entry = self._times.head
        if entry is not None and self._base + entry.place <= header.base_offset + header.last_offset_delta:
            self._time_entries(header)

    def _offset_entries(self, position: int, header: BatchHeader) -> None:
        while (entry := self._offsets.head) is not None and entry.place <= position:
            offset = self._base + entry.value
            if entry.place != position:
                what = f"it points to byte {entry.place}, where no batch begins"
                self._wrong(Kind.WRONG_INDEX_ENTRY, self._offsets, entry, offset, what)
            elif not self._fits(offset, header):
                what = (
                    f"it says that the batch at byte {entry.place} ends with offset {offset}, not {header.last_offset}"
                )
                self._wrong(Kind.WRONG_INDEX_ENTRY, self._offsets, entry, offset, what)
            else:
                spacing = self._bytes_since_entry
                self._least_spacing = min(self._least_spacing or spacing, spacing)
            self._bytes_since_entry = 0
            self._offsets.advance()

    def _fits(self, offset: Offset, header: BatchHeader) -> bool:
        # Kafka appends several batches at once and names the last offset of them all: that serves as well.
        return offset == header.last_offset or (not self._is_semel and offset > header.last_offset)

    def _time_entries(self, header: BatchHeader) -> None:
        while (entry := self._times.head) is not None and self._base + entry.place <= header.last_offset:
            offset = self._base + entry.place
            if offset < header.base_offset:
                what = f"it names offset {offset}, which no batch holds"
                self._wrong(Kind.WRONG_TIME_ENTRY, self._times, entry, offset, what)
            elif not entry.value == self._max_timestamp_ms == header.max_timestamp:
                what = f"it says that offset {offset} has time {entry.value}, but its batch has {header.max_timestamp}"
                if header.max_timestamp != self._max_timestamp_ms:
                    what += f", and one before it {self._max_timestamp_ms}"
                self._wrong(Kind.WRONG_TIME_ENTRY, self._times, entry, offset, what)
            elif self._is_semel and offset != self._max_timestamp_offset:
                what = f"it says that time {entry.value} begins at offset {offset}, not {self._max_timestamp_offset}"
                self._wrong(Kind.WRONG_TIME_ENTRY, self._times, entry, offset, what)
            self._last_time_ms = entry.value
            self._times.advance()

    def skip(self, position: int, end: int, next_offset: Offset | None) -> None:
        """Bytes that cannot be read: what the indexes say of them cannot be judged."""
        while (entry := self._offsets.head) is not None and position <= entry.place < end:
            self._offsets.advance()
        self._bytes_since_entry = 0
        while next_offset is not None and (entry := self._times.head) and self._base + entry.place < next_offset:
            self._last_time_ms = entry.value
            if entry.value > self._max_timestamp_ms:
                self._max_timestamp_ms, self._max_timestamp_offset = entry.value, self._base + entry.place
            self._times.advance()

    def finish(self, size_bytes: int, end_offset: Offset, *, is_whole: bool) -> None:
        """`is_whole`: every batch of the segment could be read."""
        for entries in (self._offsets, self._times):
            if not self._is_trusted:
                continue
            if not entries.is_there:
                if size_bytes:
                    self._findings.add(Kind.MISSING_INDEX, entries.path, "the file is missing")
            elif entries.odd_bytes or entries.zeros:
                what = f"{entries.odd_bytes} bytes too many" if entries.odd_bytes else f"{entries.zeros} empty entries"
                self._findings.add(Kind.BROKEN_INDEX, entries.path, what)
        if not is_whole:
            return
        self._misplaced(size_bytes, end_offset)
        if not self._is_trusted:
            return
        if self._times.is_there and self._max_timestamp_ms > 0 and self._last_time_ms < self._max_timestamp_ms:
            what = "it is empty" if self._last_time_ms < 0 else f"it ends with time {self._last_time_ms}"
            what += f", but the segment goes up to {self._max_timestamp_ms}"
            self._findings.add(Kind.SHORT_TIME_INDEX, self._times.path, what)
        unusual = _UNUSUAL_SPACING * max(self._least_spacing, _DEFAULT_INTERVAL_BYTES)
        if self._is_semel and self._bytes_since_entry > unusual:
            what = f"the last {self._bytes_since_entry} bytes of the segment have no entry"
            self._findings.add(Kind.SHORT_INDEX, self._offsets.path, what)

    def _misplaced(self, size_bytes: int, end_offset: Offset) -> None:
        """Entries out of order, or beyond the end: after a crash an index may be ahead of its segment."""
        for entries, kind in ((self._offsets, Kind.WRONG_INDEX_ENTRY), (self._times, Kind.WRONG_TIME_ENTRY)):
            while entries.head is not None:
                if self._is_trusted:
                    entries.misplaced.append(entries.head)
                entries.advance()
            for entry in entries.misplaced:
                if entries is self._offsets:
                    offset = self._base + entry.value
                    what = f"it points to byte {entry.place} of {size_bytes}, which is out of order or beyond the end"
                else:
                    offset = self._base + entry.place
                    what = f"it names offset {offset}, out of order or beyond the end; {end_offset - 1} is the last"
                self._wrong(kind, entries, entry, offset, what)

    def _wrong(self, kind: Kind, entries: _Entries, entry: _Entry, offset: Offset, what: str) -> None:
        if not self._is_trusted:
            kind = Kind.INDEX_TO_BE_REBUILT
        self._findings.add(kind, entries.path, what, position=entry.at, offset=offset)
