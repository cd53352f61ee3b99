"""What became of the transactions in a stretch of a log: each batch learns it from a marker that comes after it.

Committed is what most are, so only aborted and open ones are remembered.
"""

from __future__ import annotations

from bisect import bisect_right

from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.scan import headers, marker_at
from semel.log.segment import LOG_SUFFIX
from semel.log.types import Offset, ProducerId
from semel.records.batch import BatchHeader
from semel.records.control import ControlType

COMMITTED = "committed"
ABORTED = "aborted"
OPEN = "open"
UNKNOWN = "unknown"


class Fates:
    def __init__(self) -> None:
        self._aborted: dict[ProducerId, list[tuple[Offset, Offset]]] = {}
        self._open: dict[ProducerId, Offset] = {}
        # Headers could not be followed to the end: what looks open may have been ended there.
        self._is_whole = True

    def note(self, header: BatchHeader, kind: ControlType | None) -> None:
        """Takes the next transactional batch: a marker of this kind, or data."""
        if not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)
        elif kind is not None:
            first = self._open.pop(header.producer_id, None)
            if first is not None and kind == ControlType.ABORT:
                self._aborted.setdefault(header.producer_id, []).append((first, header.base_offset))

    def lose_track(self) -> None:
        self._is_whole = False

    def of(self, header: BatchHeader) -> str | None:
        """What became of a batch's records; None for one outside of transactions."""
        if not header.is_transactional or header.is_control:
            return None
        aborted = self._aborted.get(header.producer_id, [])
        number = bisect_right(aborted, header.base_offset, key=lambda one: one[0]) - 1
        if number >= 0 and header.base_offset < aborted[number][1]:
            return ABORTED
        began = self._open.get(header.producer_id)
        if began is not None and began <= header.base_offset:
            return OPEN if self._is_whole else UNKNOWN
        return COMMITTED


def read_fates(partition: PartitionFiles, bases: list[Offset]) -> Fates:
    """From the first of these segments to the last; only headers and markers are read."""
    fates = Fates()
    for base in bases:
        file = partition.files.open(partition.path(base, LOG_SUFFIX))
        try:
            size, end = file.size(), 0
            for position, header in headers(file, size):
                end = position + header.size_bytes
                if header.is_transactional:
                    marker = marker_at(file, position, header)
                    fates.note(header, None if marker is None else marker.kind)
            if end < size:
                fates.lose_track()
        finally:
            file.close()
    return fates
