"""Which batches of an answer the program may see: never markers, and with read_committed nothing that was aborted.

The broker sends, with the batches, the aborted transactions among them: producer id and first offset. It never sends a
reader of committed records anything past the last stable offset, so whatever is not aborted here is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from struct import Struct

from semel.records.batch import BatchHeader, Buffer
from semel.records.control import ControlType
from semel.records.read import read_records

_CONTROL_KEY = Struct(">hh")  # version, type
_MAX_MARKER_BYTES = 64 * 1024


class AbortedTransactions:
    """The aborted transactions of one answer for one partition; asked about its batches in their order, each once."""

    __slots__ = ("_aborted_producers", "_to_begin")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted`: producer id and first offset of each."""
        self._to_begin = deque(sorted((first_offset, producer_id) for producer_id, first_offset in aborted))
        self._aborted_producers: set[int] = set()

    def hide(self, batch: Buffer, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction. No record of it is decoded, but for a marker's."""
        if header.producer_id < 0:
            return False
        to_begin = self._to_begin
        while to_begin and to_begin[0][0] <= header.last_offset:
            self._aborted_producers.add(to_begin.popleft()[1])
        if header.is_control:
            if is_abort_marker(batch, header):
                self._aborted_producers.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._aborted_producers


def is_abort_marker(batch: Buffer, header: BatchHeader) -> bool:
    """Markers of types that we do not know, and those that compaction has emptied, end no aborted transaction."""
    records = read_records(batch, header, max_decompressed_bytes=_MAX_MARKER_BYTES)
    key = records[0].key if records else None
    if key is None or len(key) < _CONTROL_KEY.size:
        return False
    _, kind = _CONTROL_KEY.unpack_from(key)
    return bool(kind == ControlType.ABORT)
