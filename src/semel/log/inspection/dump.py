"""What a dump tells of the batches of a partition, one by one, and of the small files beside them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from semel.log.batch_search import ReadableFile
from semel.log.indexes import AbortedTransaction, OffsetIndex, TimeIndex
from semel.log.inspection.aborted_check import read_aborted
from semel.log.inspection.fates import Fates, aborted_in, read_fates
from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.scan import headers, marker_of, scan
from semel.log.segment import ABORTED_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from semel.log.types import Offset
from semel.records.batch import BatchHeader
from semel.records.compression import Codec
from semel.records.control import ControlMarker
from semel.records.errors import RecordError
from semel.records.read import Record, read_records

_CONTROL_KINDS = {
    2: "leader change",
    3: "snapshot header",
    4: "snapshot footer",
    5: "kraft version",
    6: "kraft voters",
}
_INDEX_SUFFIXES = ((INDEX_SUFFIX, OffsetIndex.entry), (TIME_INDEX_SUFFIX, TimeIndex.entry))


class DumpedBatch(NamedTuple):
    """`header` is None where no batch can be read; `transaction` is one of the fates, None outside of transactions."""

    path: str
    position: int
    size_bytes: int
    header: BatchHeader | None
    problem: str | None
    transaction: str | None = None
    marker: ControlMarker | None = None
    # Of a control batch that ends no transaction.
    control: str | None = None
    records: list[Record] | None = None

    def as_json(self) -> dict[str, Any]:
        """Everything but the records."""
        shown: dict[str, Any] = {"file": self.path, "position": self.position, "bytes": self.size_bytes}
        header = self.header
        if header is not None:
            shown |= {
                "base_offset": header.base_offset,
                "last_offset": header.last_offset,
                "records": header.record_count,
                "leader_epoch": header.partition_leader_epoch,
                "codec": codec_name(header),
                "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
                "base_timestamp_ms": None if header.has_delete_horizon else header.base_timestamp,
                "max_timestamp_ms": header.max_timestamp,
                "delete_horizon_ms": header.base_timestamp if header.has_delete_horizon else None,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "last_sequence": header.last_sequence,
                "is_transactional": header.is_transactional,
                "is_control": header.is_control,
                "crc": header.crc,
            }
        shown["transaction"] = self.transaction
        if self.marker is not None:
            shown["marker"] = {"type": self.marker.kind.name, "coordinator_epoch": self.marker.coordinator_epoch}
        elif self.control is not None:
            shown["marker"] = {"type": self.control}
        shown["problem"] = self.problem
        return shown


def codec_name(header: BatchHeader) -> str:
    try:
        return Codec(header.codec).name.lower()
    except ValueError:
        return str(header.codec)


def dump_batches(
    partition: PartitionFiles, bases: list[Offset], *, first: Offset | None = None, reads_records: bool = False
) -> Iterator[DumpedBatch]:
    """The batches of these segments, from the one that holds `first` on."""
    if first is not None:
        bases = bases[max(bisect_right(bases, first) - 1, 0) :]
    if not bases:
        return
    fates = read_fates(partition, partition.bases[partition.bases.index(bases[0]) :])
    for base in bases:
        file = partition.files.open(partition.path(base, LOG_SUFFIX))
        try:
            yield from _dumped(file, fates, first, reads_records)
        finally:
            file.close()


def dump_file(file: ReadableFile, *, reads_records: bool = False) -> Iterator[DumpedBatch]:
    """The batches of a file that stands alone, such as a snapshot of the metadata."""
    yield from _dumped(file, Fates(), None, reads_records)


def _dumped(file: ReadableFile, fates: Fates, first: Offset | None, reads_records: bool) -> Iterator[DumpedBatch]:
    size = file.size()
    start = 0
    if first is not None:
        for position, header in headers(file, size):
            start = position
            if header.last_offset >= first:
                break
            start = position + header.size_bytes
    for scanned in scan(file, size, start):
        header_or_none, length = scanned.header, scanned.end - scanned.position
        if header_or_none is None or scanned.problem is not None:
            yield DumpedBatch(file.path, scanned.position, length, header_or_none, scanned.problem)
            continue
        found = header_or_none
        marker = marker_of(found, scanned.batch)
        records, problem = None, None
        if reads_records or (found.is_control and marker is None):
            data = scanned.batch if scanned.batch is not None else file.read_at(scanned.position, found.size_bytes)
            try:
                records = read_records(data, found)
            except RecordError as error:
                problem = f"its records cannot be read: {error}"
        control = None
        if found.is_control and marker is None:
            control = _control_kind(records)
        shown = records if reads_records else None
        fate = fates.of(found)
        yield DumpedBatch(file.path, scanned.position, length, found, problem, fate, marker, control, shown)


def _control_kind(records: list[Record] | None) -> str:
    key = records[0].key if records else None
    if key is None or len(key) < 4:
        return "emptied by compaction" if records == [] else "unknown"
    kind = int.from_bytes(key[2:4], "big")
    return _CONTROL_KINDS.get(kind, f"type {kind}")


class IndexEntry(NamedTuple):
    """An entry of an offset index (offset, position) or a time index (offset, timestamp)."""

    path: str
    offset: Offset
    position: int | None = None
    timestamp_ms: int | None = None


def dump_indexes(partition: PartitionFiles, bases: list[Offset]) -> Iterator[IndexEntry]:
    for base in bases:
        for suffix, entry in _INDEX_SUFFIXES:
            data = partition.read(base, suffix) or b""
            path = partition.path(base, suffix)
            for first, second in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
                if suffix == INDEX_SUFFIX:
                    yield IndexEntry(path, base + first, position=second)
                else:
                    yield IndexEntry(path, base + second, timestamp_ms=first)


def dump_aborted(partition: PartitionFiles, bases: list[Offset]) -> Iterator[tuple[str, AbortedTransaction]]:
    """What the indexes name. A node writes that of the active segment when it seals it, or stops: what is not there yet
    is found in the log itself, and told under the name of the log."""
    for base in bases:
        entries, _ = read_aborted(partition.read(base, ABORTED_INDEX_SUFFIX) or b"")
        for entry in entries:
            yield partition.path(base, ABORTED_INDEX_SUFFIX), entry
        if base == partition.bases[-1]:
            known = {(entry.producer_id, entry.last_offset) for entry in entries}
            for found in aborted_in(partition, base):
                if (found.producer_id, found.last_offset) not in known:
                    yield partition.path(base, LOG_SUFFIX), found
