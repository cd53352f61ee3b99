"""Shows what `semel log dump` reads: a line for each batch, those of its records below it, and the small files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import groupby, islice
from typing import Any

from semel.cli.output import Cell, Output, json_bytes, printable
from semel.log.inspection.decode import Decoded, Undecodable, decoder_for, fields_of
from semel.log.inspection.dump import DumpedBatch, IndexEntry, codec_name, dump_aborted, dump_indexes
from semel.log.inspection.fates import ABORTED, OPEN, UNKNOWN
from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.producer_files import read_snapshot_file, read_window_file
from semel.log.producers import Batch, Entry
from semel.log.segment import LOG_SUFFIX
from semel.log.snapshots import SNAPSHOT_SUFFIX, WINDOW_SUFFIX
from semel.records.read import Record
from semel.wire.schema import Message
from semel.wire.spec.transaction_log import TransactionLogValue

_TITLES = (
    "OFFSETS",
    "POSITION",
    "BYTES",
    "TIME",
    "RECORDS",
    "CODEC",
    "LEADER",
    "PRODUCER",
    "EPOCH",
    "SEQUENCES",
    "WHAT",
)
# So many batches are looked at before the first is shown: wide enough columns, and a large log is not kept in memory.
_ROWS_AT_ONCE = 500
_SHOWN_CHARACTERS = 60
_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999  # the end of the year 9999

Decoder = Callable[[Record], Decoded]


def utc_text(timestamp_ms: int) -> str:
    """In UTC, so that a dump reads the same everywhere; a number that is no time stays one."""
    if not 0 <= timestamp_ms <= _LAST_MS:
        return str(timestamp_ms)
    moment = _EPOCH_START + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def show_batches(
    output: Output, batches: Iterable[DumpedBatch], options: argparse.Namespace, topic: str | None
) -> None:
    decoder = decoder_for(topic or "") if options.decode else None
    batches = islice(batches, options.count)
    if output.is_json:
        for batch in batches:
            document = batch.as_json()
            if batch.records is not None:
                document["record_list"] = [_record_json(batch, record, decoder) for record in batch.records]
            output.json_line(document)
        return
    path = None
    while rows := list(islice(batches, _ROWS_AT_ONCE)):
        for of_file, some in groupby(rows, key=lambda batch: batch.path):
            if of_file != path:
                _show_title(output, of_file, is_first=path is None)
            _show_rows(output, list(some), options, decoder, with_titles=of_file != path)
            path = of_file


def _show_title(output: Output, path: str, *, is_first: bool) -> None:
    if not is_first:
        output.line()
    output.line(output.paint(printable(path), "bold"))


def _show_rows(
    output: Output,
    batches: Sequence[DumpedBatch],
    options: argparse.Namespace,
    decoder: Decoder | None,
    *,
    with_titles: bool,
) -> None:
    lines = _table_lines(output, [_row(batch) for batch in batches])
    if with_titles:
        output.line(lines[0])
    for line, batch in zip(lines[1:], batches, strict=True):
        output.line(line)
        for record in batch.records or () if batch.marker is None else ():  # of a marker the line has said it all
            output.line(f"    {_record_text(batch, record, decoder, options.full)}")


def _table_lines(output: Output, rows: Sequence[Sequence[object]]) -> list[str]:
    """The table line by line, because records come between its lines."""
    text = StringIO()
    Output(text, output.notes, has_colours=output.has_colours).table(_TITLES, rows)
    return text.getvalue().splitlines()


def _row(batch: DumpedBatch) -> list[object]:
    header = batch.header
    if header is None:
        unknown = [None] * 7
        return [None, batch.position, batch.size_bytes, *unknown, Cell(f"UNREADABLE: {batch.problem}", "red")]
    has_producer = header.producer_id >= 0
    return [
        _range(header.base_offset, header.last_offset),
        batch.position,
        batch.size_bytes,
        utc_text(header.max_timestamp),
        header.record_count,
        codec_name(header),
        header.partition_leader_epoch,
        header.producer_id if has_producer else None,
        header.producer_epoch if has_producer else None,
        _range(header.base_sequence, header.last_sequence) if header.base_sequence >= 0 else "-",
        _what(batch),
    ]


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _what(batch: DumpedBatch) -> Cell | str:
    header = batch.header
    if batch.problem is not None or header is None:
        return Cell(f"BAD: {batch.problem}", "red")
    notes = ["times of the append"] if header.is_log_append_time else []
    if header.has_delete_horizon:
        notes.append(f"may be compacted away from {utc_text(header.base_timestamp)} on")
    if batch.marker is not None:
        text = f"{batch.marker.kind.name} by coordinator epoch {batch.marker.coordinator_epoch}"
        return Cell(", ".join([text, *notes]), "cyan")
    if header.is_control:
        return Cell(", ".join([f"control: {batch.control}", *notes]), "cyan")
    if batch.transaction is None:
        return ", ".join(notes) or "-"
    loud = {ABORTED: ("ABORTED", "red"), OPEN: ("OPEN", "yellow"), UNKNOWN: ("end unknown", "yellow")}
    text, colour = loud.get(batch.transaction, (batch.transaction, "green"))
    return Cell(", ".join([f"transaction, {text}", *notes]), colour)


# -- records


def _record_text(batch: DumpedBatch, record: Record, decoder: Decoder | None, is_full: bool) -> str:
    parts = [str(record.offset)]
    if batch.header is not None and record.timestamp_ms != batch.header.max_timestamp:
        parts.append(utc_text(record.timestamp_ms))
    if decoder is not None and not (batch.header and batch.header.is_control):
        try:
            return "  ".join([*parts, _decoded_text(decoder(record))])
        except Undecodable as reason:
            parts.append(f"(not decoded: {reason})")
    parts.append(f"key {_bytes_text(record.key, is_full)}")
    parts.append(f"value {_bytes_text(record.value, is_full)}")
    parts += [f"header {printable(name)}={_bytes_text(value, is_full)}" for name, value in record.headers]
    return "  ".join(parts)


def _bytes_text(data: bytes | None, is_full: bool) -> str:
    """As text if it is one, else in hex; shortened unless all of it is asked for."""
    if data is None:
        return "null"
    try:
        text = data.decode()
        shown = json.dumps(text, ensure_ascii=False) if text.isprintable() else ""
    except UnicodeDecodeError:
        shown = ""
    if not shown:
        shown = f"0x{data.hex()}"
    if is_full or len(shown) <= _SHOWN_CHARACTERS:
        return shown
    return f"{shown[:_SHOWN_CHARACTERS]}... ({len(data)} bytes)"


def _decoded_text(decoded: Decoded) -> str:
    key, value = decoded
    parts = [_message_text(key, with_defaults=True)] if key is not None else []
    parts.append("removed" if value is None else _message_text(value, with_defaults=False))
    return " -> ".join(parts)


def _message_text(message: Message, *, with_defaults: bool) -> str:
    fields = _fields(message, with_defaults=with_defaults)
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
    return printable(f"{type(message).__name__}({shown})")


def _fields(message: Message, *, with_defaults: bool) -> dict[str, Any]:
    fields = fields_of(message, with_defaults=with_defaults)
    if isinstance(message, TransactionLogValue):
        from semel.coordinator.txn.state import TransactionState

        labels = {state.value: state.label for state in TransactionState}
        others = {name: value for name, value in fields.items() if name != "transaction_status"}
        status = message.transaction_status
        fields = {"transaction_status": labels.get(status, status), **others}
    return fields


def _record_json(batch: DumpedBatch, record: Record, decoder: Decoder | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }
    if decoder is not None and not (batch.header and batch.header.is_control):
        try:
            key, value = decoder(record)
            shown["decoded"] = {"key": _message_json(key), "value": _message_json(value)}
        except Undecodable as reason:
            shown["not_decoded"] = str(reason)
    return shown


def _message_json(message: Message | None) -> dict[str, Any] | None:
    if message is None:
        return None
    return {"type": type(message).__name__, **_fields(message, with_defaults=True)}


# -- the other files


def show_indexes(output: Output, partition: PartitionFiles, bases: list[int]) -> None:
    entries = dump_indexes(partition, bases)
    if output.is_json:
        for entry in entries:
            output.json_line({name: value for name, value in entry._asdict().items() if value is not None})
        return
    rows = ((entry.path, _index_row(entry)) for entry in entries)
    _by_file(output, rows, ("OFFSET", "HAS", "VALUE"))


def _index_row(entry: IndexEntry) -> list[object]:
    if entry.timestamp_ms is None:
        return [entry.offset, "position", entry.position]
    return [entry.offset, "time", utc_text(entry.timestamp_ms)]


def show_aborted(output: Output, partition: PartitionFiles, bases: list[int]) -> None:
    entries = list(dump_aborted(partition, bases))
    if output.is_json:
        for path, aborted in entries:
            output.json_line({"file": path, **aborted._asdict()})
        return
    titles = ("PRODUCER", "FIRST OFFSET", "MARKER", "LAST STABLE OFFSET")
    _by_file(output, ((path, list(aborted)) for path, aborted in entries), titles)
    if any(path.endswith(LOG_SUFFIX) for path, _ in entries):
        output.note(
            "those of a .log are not in its index yet: a node writes that when the segment is full, or it stops"
        )


def show_producers(output: Output, partition: PartitionFiles) -> None:
    if output.is_json:
        for path, entry, before in _producers(output, partition):
            older = [batch._asdict() for batch in before]
            output.json_line({"file": path, **entry._asdict(), "older_batches": older})
        return
    titles = (
        "PRODUCER",
        "EPOCH",
        "LAST SEQUENCE",
        "LAST OFFSET",
        "SEEN",
        "COORDINATOR",
        "OPEN SINCE",
        "OLDER SEQUENCES",
    )
    rows = ((path, _producer_row(entry, before)) for path, entry, before in _producers(output, partition))
    _by_file(output, rows, titles)


def _producers(output: Output, partition: PartitionFiles) -> Iterator[tuple[str, Entry, list[Batch]]]:
    """Every producer of every snapshot, with the batches before its newest."""
    for offset in partition.offsets(SNAPSHOT_SUFFIX):
        path = partition.path(offset, SNAPSHOT_SUFFIX)
        snapshot = read_snapshot_file(partition.read(offset, SNAPSHOT_SUFFIX) or b"")
        if snapshot.problem is not None:
            output.note(f"{path}: {snapshot.problem}")
        window = partition.read(offset, WINDOW_SUFFIX)
        older = {} if window is None else read_window_file(window).older
        for entry in snapshot.entries:
            yield path, entry, older.get(entry.producer_id, [])


def _producer_row(entry: Entry, before: list[Batch]) -> list[object]:
    since = entry.transaction_first_offset
    return [
        entry.producer_id,
        entry.epoch,
        _number(entry.last_sequence),
        _number(entry.last_offset),
        utc_text(entry.timestamp_ms),
        _number(entry.coordinator_epoch),
        _number(since),
        ", ".join(_range(batch.first_sequence, batch.last_sequence) for batch in before) or "-",
    ]


def _number(value: int) -> int | None:
    return value if value >= 0 else None


def _by_file(output: Output, rows: Iterable[tuple[str, list[object]]], titles: Sequence[str]) -> None:
    """A table for each file."""
    is_first = True
    for path, of_file in groupby(rows, key=lambda row: row[0]):
        _show_title(output, path, is_first=is_first)
        output.table(titles, [row for _, row in of_file])
        is_first = False
    if is_first:
        output.note("there are no entries")
