"""What became of the transactions in a stretch of a log: each batch learns it from a marker that comes after it.

Committed is what most are, so only aborted and open ones are remembered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from semel.log.indexes import AbortedTransaction
from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.producer_files import read_snapshot_file
from semel.log.inspection.scan import headers, marker_at
from semel.log.producers import NO_OFFSET
from semel.log.segment import LOG_SUFFIX
from semel.log.snapshots import SNAPSHOT_SUFFIX
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
        is_whole = True
        for header, kind in _transactional(partition, base):
            if header is None:
                is_whole = False
            else:
                fates.note(header, kind)
        if not is_whole:
            fates.lose_track()
    return fates


def aborted_in(partition: PartitionFiles, base: Offset) -> Iterator[AbortedTransaction]:
    """What the index of a segment has to name, by a look at the log itself. Where transactions began that were open
    when the segment did is known from the snapshot of its producers, or else from the segments before it."""
    open_since: dict[ProducerId, Offset] = {}
    snapshot = read_snapshot_file(partition.read(base, SNAPSHOT_SUFFIX) or b"")
    if snapshot.problem is None:
        entries = {entry.producer_id: entry.transaction_first_offset for entry in snapshot.entries}
        open_since = {producer_id: first for producer_id, first in entries.items() if first != NO_OFFSET}
    earlier = [] if snapshot.problem is None else [one for one in partition.bases if one < base]
    for one in [*earlier, base]:
        for header, kind in _transactional(partition, one):
            if header is None:
                break
            if not header.is_control:
                open_since.setdefault(header.producer_id, header.base_offset)
            elif kind is not None:
                first = open_since.pop(header.producer_id, None)
                if one == base and first is not None and kind == ControlType.ABORT:
                    stable = min(open_since.values(), default=header.base_offset + 1)
                    yield AbortedTransaction(header.producer_id, first, header.base_offset, stable)


def _transactional(partition: PartitionFiles, base: Offset) -> Iterator[tuple[BatchHeader | None, ControlType | None]]:
    """The headers of a segment's transactional batches, each with the end that it tells if it is a marker; and None at
    the end if headers could not be followed that far."""
    file = partition.files.open(partition.path(base, LOG_SUFFIX))
    try:
        size, end = file.size(), 0
        for position, header in headers(file, size):
            end = position + header.size_bytes
            if header.is_transactional:
                marker = marker_at(file, position, header)
                yield header, None if marker is None else marker.kind
        if end < size:
            yield None, None
    finally:
        file.close()
