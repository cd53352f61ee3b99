"""A user's Arrow columns, checked and handed to the kernel: what may be written, and where its bytes lie.

A table's columns may be cut into chunks at different rows; here they become chunks in which all columns are whole.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Literal, NamedTuple

import pyarrow as pa

from semel.records import column_kernel

LARGEST_ROW_COUNT = 2**31 - 1  # rows are named by 32-bit integers

# by unit of the timestamp: (factor, divisor)
_TO_MILLISECONDS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}

_ALLOWED = (
    "allowed are value (binary or string, required), key (binary or string), timestamp (a timestamp, or int64 of "
    "milliseconds), headers (list<struct<key: string, value: binary>> or map<string, binary>) "
    "and partition (an integer)"
)


class Chunk(NamedTuple):
    first_row: int
    batch: pa.RecordBatch


class ColumnInput:
    """Columns that were found fit to be written."""

    def __init__(self, columns: pa.RecordBatch | pa.Table) -> None:
        if not isinstance(columns, pa.RecordBatch | pa.Table):
            raise TypeError(f"columns are a pyarrow RecordBatch or Table, not {type(columns).__name__}")
        _check_schema(columns.schema)
        if columns.num_rows > LARGEST_ROW_COUNT:
            raise ValueError(f"{columns.num_rows} rows at once; at most {LARGEST_ROW_COUNT} can be written")
        self.row_count: int = columns.num_rows
        self.chunks: list[Chunk] = []
        first_row = 0
        for batch in [columns] if isinstance(columns, pa.RecordBatch) else columns.to_batches():
            if batch.num_rows > 0:
                self.chunks.append(Chunk(first_row, batch))
                first_row += batch.num_rows
        self._first_rows = [chunk.first_row for chunk in self.chunks]
        self._records: dict[int, column_kernel.RecordColumns] = {}

    def records_of(self, row: int) -> column_kernel.RecordColumns:
        """The chunk that holds a row, as the kernel wants it."""
        if not 0 <= row < self.row_count:
            raise ValueError(f"there is no row {row} among {self.row_count}")
        index = bisect_right(self._first_rows, row) - 1
        records = self._records.get(index)
        if records is None:
            records = self._records[index] = _record_columns(self.chunks[index])
        return records


def present_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column that need not be there. One of Arrow's type null, which has nulls only, is as good as absent."""
    index = batch.schema.get_field_index(name)
    if index < 0 or pa.types.is_null(batch.schema.field(index).type):
        return None
    return batch.column(index)


def binary_column(column: pa.Array) -> column_kernel.BinaryColumn:
    if not (_has_narrow_offsets(column.type) or _has_wide_offsets(column.type)):
        column = column.cast(pa.large_binary())  # a view, or of type null
    validity, offsets, data = column.buffers()
    return column_kernel.BinaryColumn(
        _view(offsets, "q" if _has_wide_offsets(column.type) else "i"),
        _view(data, "B"),
        None if column.null_count == 0 else _view(validity, "B"),
        column.offset,
        len(column),
    )


def number_column(column: pa.Array) -> column_kernel.NumberColumn:
    if column.type.bit_width != 64:
        column = column.cast(pa.int64())
    validity, numbers = column.buffers()
    bits = None if column.null_count == 0 else _view(validity, "B")
    return column_kernel.NumberColumn(_view(numbers, "q"), bits, column.offset, len(column))


def _record_columns(chunk: Chunk) -> column_kernel.RecordColumns:
    keys = present_column(chunk.batch, "key")
    headers = present_column(chunk.batch, "headers")
    timestamps = present_column(chunk.batch, "timestamp")
    factor, divisor = 1, 1
    if timestamps is not None and pa.types.is_timestamp(timestamps.type):
        factor, divisor = _TO_MILLISECONDS[timestamps.type.unit]
    return column_kernel.RecordColumns(
        chunk.first_row,
        binary_column(chunk.batch.column("value")),
        None if keys is None else binary_column(keys),
        None if headers is None else _header_column(headers),
        None if timestamps is None else number_column(timestamps),
        factor,
        divisor,
    )


def _header_column(column: pa.Array) -> column_kernel.HeaderColumn:
    if pa.types.is_map(column.type):
        keys, values = column.keys, column.items
    else:
        pair = column.type.value_type
        # unlike `field`, `flatten` hands the nulls among the pairs on to their parts
        parts = column.values.flatten()
        keys, values = parts[pair.get_field_index("key")], parts[pair.get_field_index("value")]
    validity, offsets = column.buffers()[:2]
    return column_kernel.HeaderColumn(
        _view(offsets, "q" if pa.types.is_large_list(column.type) else "i"),
        binary_column(keys),
        binary_column(values),
        None if column.null_count == 0 else _view(validity, "B"),
        column.offset,
        len(column),
    )


def _view(buffer: pa.Buffer | None, kind: Literal["B", "i", "q"]) -> memoryview:
    """An Arrow buffer as numbers of one kind. Arrow may leave a buffer out that would be empty."""
    empty = memoryview(array(kind))
    if buffer is None or buffer.size < empty.itemsize:
        return empty
    whole: memoryview = memoryview(buffer)[: buffer.size // empty.itemsize * empty.itemsize]
    return whole.cast("B").cast(kind)


def _check_schema(schema: pa.Schema) -> None:
    for name in schema.names:
        if name not in _IS_ALLOWED:
            raise ValueError(f"there is a column {name!r}; {_ALLOWED}")
        if schema.names.count(name) > 1:
            raise ValueError(f"there are several columns {name!r}; {_ALLOWED}")
    if "value" not in schema.names:
        raise ValueError(f"there is no column 'value'; {_ALLOWED}")
    for field in schema:
        if not (pa.types.is_null(field.type) or _IS_ALLOWED[field.name](field.type)):
            raise TypeError(f"column {field.name!r} is {field.type}; {_ALLOWED}")


def _has_narrow_offsets(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))


def _has_wide_offsets(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    # by name, as a pyarrow that is old enough knows no views
    return _has_narrow_offsets(kind) or _has_wide_offsets(kind) or str(kind) in ("binary_view", "string_view")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view")


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_text(kind.key_type) and _is_bytes(kind.item_type)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    parts = {field.name: field.type for field in kind.value_type}
    return len(parts) == kind.value_type.num_fields and (
        parts.keys() == {"key", "value"} and _is_text(parts["key"]) and _is_bytes(parts["value"])
    )


_IS_ALLOWED = {
    "value": _is_bytes,
    "key": _is_bytes,
    "timestamp": _is_timestamp,
    "headers": _is_headers,
    "partition": pa.types.is_integer,
}
