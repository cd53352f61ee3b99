"""Compares the aborted transactions that the indexes name with those that a replay of the log finds.

Too few entries, and readers of committed data get aborted records; too many, and committed ones are hidden from them.
An entry for a transaction whose records or marker are gone for a good reason does no harm, and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable

from semel.log.indexes import AbortedIndex, AbortedTransaction
from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.findings import Findings, Kind
from semel.log.producers import EndedTransaction
from semel.log.segment import ABORTED_INDEX_SUFFIX
from semel.log.types import Offset, ProducerId

_ENTRY = AbortedIndex.entry
MayBeGone = Callable[[Offset], bool]


def read_aborted(data: bytes) -> tuple[list[AbortedTransaction], int]:
    """The entries of an index file, and how many bytes at its end are none."""
    odd_bytes = len(data) % _ENTRY.size
    entries = [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(data[: len(data) - odd_bytes])]
    return entries, odd_bytes


def _versions(data: bytes) -> list[int]:
    return [fields[0] for fields in _ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size])]


class AbortedCheck:
    """Tell it of every transaction that ends, segment by segment; `finish_segment` compares."""

    def __init__(self, partition: PartitionFiles, may_be_gone: MayBeGone, findings: Findings) -> None:
        self._partition = partition
        self._may_be_gone = may_be_gone
        self._findings = findings
        self._replayed: dict[tuple[ProducerId, Offset], AbortedTransaction] = {}
        # Markers of transactions without any record in the log.
        self._bare: set[tuple[ProducerId, Offset]] = set()

    def ended(self, ended: EndedTransaction, oldest_open: Offset | None) -> None:
        if ended.aborted:
            stable = ended.marker_offset + 1 if oldest_open is None else oldest_open
            self._replayed[ended.producer_id, ended.marker_offset] = AbortedTransaction(
                ended.producer_id, ended.first_offset, ended.marker_offset, stable
            )

    def bare_abort(self, producer_id: ProducerId, marker_offset: Offset) -> None:
        self._bare.add((producer_id, marker_offset))

    def finish_segment(self, base: Offset, end: Offset, *, is_trusted: bool, blind_from: Offset | None) -> None:
        """`is_trusted`: the next start takes the index as it is; otherwise it makes it anew, and it may be short."""
        path = self._partition.path(base, ABORTED_INDEX_SUFFIX)
        data = self._partition.read(base, ABORTED_INDEX_SUFFIX)
        entries, odd_bytes = read_aborted(data or b"")
        if odd_bytes and is_trusted:
            self._findings.add(
                Kind.BROKEN_ABORTED_INDEX, path, f"{odd_bytes} bytes too many", position=len(data or b"")
            )
        if blind_from is not None:
            self._replayed = {key: one for key, one in self._replayed.items() if one.last_offset < blind_from}
        for number, (entry, version) in enumerate(zip(entries, _versions(data or b""), strict=True)):
            position = number * _ENTRY.size
            if blind_from is not None and entry.last_offset >= blind_from:
                continue
            if not is_trusted and (not entry.last_offset or entry.last_offset >= end):
                continue  # a crash may leave zeros, or an index that is ahead of its segment
            found = self._replayed.pop((entry.producer_id, entry.last_offset), None)
            problem = self._wrong_with(entry, found) if version == 0 else f"an entry of version {version}"
            if problem is not None:
                kind = Kind.WRONG_ABORT if is_trusted else Kind.INDEX_TO_BE_REBUILT
                self._findings.add(kind, path, problem, position=position, offset=entry.first_offset)
        if is_trusted and not odd_bytes:
            for missing in self._replayed.values():
                what = f"producer {missing.producer_id} aborted what it wrote from offset {missing.first_offset} on"
                what += " and it is not in the index" if data is not None else " and the index is missing"
                self._findings.add(Kind.MISSING_ABORT, path, what, offset=missing.first_offset)
        self._replayed.clear()
        self._bare.clear()

    def _wrong_with(self, entry: AbortedTransaction, found: AbortedTransaction | None) -> str | None:
        who = f"producer {entry.producer_id}"
        if min(entry) < 0:
            return f"{who}: an offset below 0"
        if found is None:
            # Of the transaction nothing is left but, perhaps, the marker.
            if self._may_be_gone(entry.first_offset) and (
                (entry.producer_id, entry.last_offset) in self._bare or self._may_be_gone(entry.last_offset)
            ):
                return None
            return f"{who} did not abort a transaction with a marker at offset {entry.last_offset} in this segment"
        if entry.first_offset != found.first_offset and not (
            entry.first_offset < found.first_offset and self._may_be_gone(entry.first_offset)
        ):
            return f"{who} began at offset {found.first_offset}, not {entry.first_offset}"
        if entry.last_stable_offset != found.last_stable_offset and not (
            # Lower only lets a reader look further; a transaction that held it back may have gone since.
            entry.last_stable_offset < found.last_stable_offset and self._may_be_gone(entry.last_stable_offset)
        ):
            return f"{who}: the last stable offset was {found.last_stable_offset}, not {entry.last_stable_offset}"
        return None
