"""Records as Arrow columns: batches to one RecordBatch, columns to batches, rows to partitions.

No Python object is made for a record: the kernels fill and read Arrow's buffers, and pyarrow wraps them without a copy.
Only this module and `column_input` import pyarrow: a broker, or a client that goes record by record, does without it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("Arrow columns need pyarrow, which is not installed: pip install 'semel[arrow]'") from error

from semel.records import column_kernel, kernel
from semel.records.batch import DEFAULT_MAX_DECOMPRESSED_BYTES, HEADER_BYTES, BatchHeader, Buffer, open_records
from semel.records.build import seal_batch
from semel.records.column_input import LARGEST_ROW_COUNT, ColumnInput, binary_column, number_column, present_column
from semel.records.errors import CorruptBatch

LARGEST_COLUMN_BYTES = 2**31 - 1  # Arrow's offsets of 32 bits reach no further
_LARGEST_OFFSET = 2**63 - 1
_SMALLEST_RECORD_BYTES = 7
_RECORD_OVERHEAD_BYTES = 20  # most records need less for their numbers; an estimate that is too small costs little

_TIMESTAMP_FACTORS = {"ms": 1, "us": 1000}


class Columns(NamedTuple):
    """Records that were read, and the offset from which to go on."""

    batch: pa.RecordBatch
    next_offset: int


class LargestRecord(NamedTuple):
    """The row that needs the most room, and the size of an uncompressed batch of it alone."""

    row: int
    batch_bytes: int


def read_columns(
    batches: Sequence[tuple[Buffer, BatchHeader]],
    *,
    first_offset: int,
    end_offset: int | None = None,
    max_records: int | None = None,
    max_bytes: int = LARGEST_COLUMN_BYTES,
    with_headers: bool = False,
    timestamp_unit: str = "ms",
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Columns:
    """The records of data batches, in order, from `first_offset` to before `end_offset`, as one RecordBatch.

    The columns are offset, timestamp, timestamp_type (0 creation, 1 append), key, value, and if asked for headers.
    It ends early, which `next_offset` tells, with `max_records` records, or before the batch whose uncompressed records
    would make it more than `max_bytes` in all; the first batch is always read. In microseconds, a timestamp hundreds of
    thousands of years away becomes the farthest they can tell.
    """
    factor = _TIMESTAMP_FACTORS.get(timestamp_unit)
    if factor is None:
        raise ValueError(f"timestamp_unit is {timestamp_unit!r}; it can be 'ms' or 'us'")
    if max_records is not None and max_records < 1:
        raise ValueError(f"max_records is {max_records}; it must be at least 1")
    if max_bytes < 1:
        raise ValueError(f"max_bytes is {max_bytes}; it must be at least 1")
    end = _LARGEST_OFFSET if end_offset is None else end_offset
    limit_bytes = min(max_bytes, LARGEST_COLUMN_BYTES)
    wanted = [(batch, header) for batch, header in batches if header.next_offset > first_offset]
    reader = kernel.ColumnReader(
        with_headers, factor, pa.allocate_buffer, *_expected_size(wanted, max_records, limit_bytes)
    )
    read_bytes = 0
    next_offset = first_offset
    for batch, header in batches:
        if header.base_offset < 0 or header.next_offset > _LARGEST_OFFSET:
            raise CorruptBatch(f"a batch of offsets {header.base_offset} to {header.last_offset}")
        if header.base_offset >= end:
            next_offset = end
            break
        if header.next_offset > first_offset:
            data, start = open_records(batch, header, max_decompressed_bytes)
            batch_bytes = len(data) - start
            if read_bytes > 0 and read_bytes + batch_bytes > limit_bytes:
                break
            read_bytes += batch_bytes
            next_offset = reader.add(
                data,
                start,
                header.record_count,
                header.last_offset_delta,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp if header.is_log_append_time else None,
                first_offset,
                end,
                LARGEST_ROW_COUNT if max_records is None else max_records,
            )
            if len(reader) == max_records:
                break
    return Columns(_record_batch(reader, timestamp_unit, with_headers), max(first_offset, min(next_offset, end)))


def _expected_size(
    batches: Sequence[tuple[Buffer, BatchHeader]], max_records: int | None, limit_bytes: int
) -> tuple[int, int]:
    """How many records there will be, and bytes, if nothing is compressed; if it is, the buffers will have to grow."""
    size_bytes = min(sum(len(batch) for batch, _ in batches), limit_bytes)
    count = min(sum(header.record_count for _, header in batches), size_bytes // _SMALLEST_RECORD_BYTES)
    if max_records is None or max_records >= count:
        return count, size_bytes
    return max_records, size_bytes * max_records // count


def _record_batch(reader: kernel.ColumnReader, timestamp_unit: str, with_headers: bool) -> pa.RecordBatch:
    schema = _schema(timestamp_unit, with_headers)
    types = [field.type for field in schema]
    count = len(reader)
    offsets, timestamps, timestamp_types, key, value, header_offsets, header_key, header_value = reader.finish()
    arrays = [
        _array(types[0], count, [offsets.slice(0, 8 * count)]),
        _array(types[1], count, [timestamps.slice(0, 8 * count)]),
        _array(types[2], count, [timestamp_types.slice(0, 4 * count)]),
        _binary_array(types[3], key),
        _binary_array(types[4], value),
    ]
    if header_offsets is not None:
        pair = types[5].value_type
        parts = [_binary_array(pair.field(0).type, header_key), _binary_array(pair.field(1).type, header_value)]
        pairs = _array(pair, len(parts[0]), [], children=parts)
        arrays.append(_array(types[5], count, [header_offsets.slice(0, 4 * (count + 1))], children=[pairs]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(
    kind: pa.DataType,
    count: int,
    buffers: list[pa.Buffer],
    *,
    validity: pa.Buffer | None = None,
    null_count: int = 0,
    children: list[pa.Array] | None = None,
) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [validity, *buffers], null_count, children=children)


def _binary_array(kind: pa.DataType, column: kernel.BinaryBuffers) -> pa.Array:
    count, null_count, validity, offsets, data, data_bytes = column
    bits = None if validity is None else validity.slice(0, (count + 7) // 8)
    buffers = [offsets.slice(0, 4 * (count + 1)), data.slice(0, data_bytes)]
    return _array(kind, count, buffers, validity=bits, null_count=null_count)


@cache
def _schema(timestamp_unit: str, with_headers: bool) -> pa.Schema:
    fields = [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp(timestamp_unit, tz="UTC")),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
    if with_headers:
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pair)))
    return pa.schema(fields)


def write_columns(
    columns: pa.RecordBatch | pa.Table,
    rows: Any = None,
    *,
    batch_bytes: int,
    default_timestamp_ms: int,
    codec: int = 0,
    level: int | None = None,
) -> list[bytearray]:
    """Record batches of the rows in order, or of those that `rows` lists, each of at most `batch_bytes` uncompressed.

    A row that is larger gets a batch of its own (see `largest_record`). `rows` is a buffer of 32-bit integers, as
    `rows_by_partition` gives. The batches are of no producer yet.
    """
    given = ColumnInput(columns)
    chosen = _chosen_rows(rows)
    count = given.row_count if chosen is None else len(chosen)
    # The size of the buffers, because `nbytes` would look into them, and trust what it finds.
    expected_bytes = HEADER_BYTES + count * _RECORD_OVERHEAD_BYTES
    expected_bytes += columns.get_total_buffer_size() * count // max(given.row_count, 1)
    encoder = column_kernel.RecordEncoder(
        min(batch_bytes, LARGEST_COLUMN_BYTES), HEADER_BYTES, expected_bytes, default_timestamp_ms
    )
    batches: list[bytearray] = []
    position = 0
    while position < count:
        reached = encoder.add(given.records_of(position if chosen is None else chosen[position]), chosen, position)
        if reached == position:
            batches.append(_sealed(*encoder.take(), codec, level))
        position = reached
    if count > 0:
        batches.append(_sealed(*encoder.take(), codec, level))
    return batches


def _sealed(
    records: bytearray, count: int, base_timestamp: int, max_timestamp: int, codec: int, level: int | None
) -> bytearray:
    return seal_batch(
        records,
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        level=level,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


def largest_record(columns: pa.RecordBatch | pa.Table, rows: Any = None) -> LargestRecord | None:
    """Which of the rows, or of those that `rows` lists, needs the most room; the first if several do, None if none."""
    given = ColumnInput(columns)
    chosen = _chosen_rows(rows)
    count = given.row_count if chosen is None else len(chosen)
    largest: LargestRecord | None = None
    position = 0
    while position < count:
        records = given.records_of(position if chosen is None else chosen[position])
        position, size, row = column_kernel.largest_record(records, chosen, position)
        if largest is None or HEADER_BYTES + size > largest.batch_bytes:
            largest = LargestRecord(row, HEADER_BYTES + size)
    return largest


def rows_by_partition(
    columns: pa.RecordBatch | pa.Table, partition_count: int, *, fallback: int
) -> list[tuple[int, memoryview]]:
    """The rows of each partition that gets any, as 32-bit integers in order.

    A row's `partition`, if there is such a column and it is not null, decides; else its key; else `fallback`.
    """
    if not 0 <= fallback < partition_count:
        raise ValueError(f"the fallback is partition {fallback}; there are {partition_count}, from 0 on")
    given = ColumnInput(columns)
    assigned = _int32_buffer(given.row_count)
    for chunk in given.chunks:
        keys = present_column(chunk.batch, "key")
        partitions = present_column(chunk.batch, "partition")
        wrong = column_kernel.assign_partitions(
            chunk.batch.num_rows,
            None if partitions is None else number_column(partitions),
            None if keys is None else binary_column(keys),
            partition_count,
            fallback,
            assigned,
            chunk.first_row,
        )
        if wrong >= 0:
            raise ValueError(
                f"row {chunk.first_row + wrong} asks for partition {chunk.batch.column('partition')[wrong]}; "
                f"there are {partition_count}, from 0 to {partition_count - 1}"
            )
    ends = _int32_buffer(partition_count)
    rows = _int32_buffer(given.row_count)
    column_kernel.sort_by_partition(assigned, ends, rows)
    found = []
    start = 0
    for partition, end in enumerate(ends):
        if end > start:
            found.append((partition, rows[start:end]))
            start = end
    return found


def _chosen_rows(rows: Any) -> memoryview | None:
    if rows is None:
        return None
    view = memoryview(rows)
    if view.format != "i" or view.ndim != 1 or not view.c_contiguous:
        raise TypeError(f"rows are a buffer of 32-bit integers in one piece, not one of format {view.format!r}")
    return view


def _int32_buffer(count: int) -> memoryview:
    return memoryview(array("i", bytes(4 * count)))
