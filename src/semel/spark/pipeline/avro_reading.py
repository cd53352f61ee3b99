"""Avro values to columns, without a schema registry and without anything of Java's.

Spark's own functions for Avro are in a jar that does not come with the pip package. So values are read here, in Python:
a schema becomes a tree of small functions, values become Arrow columns, and Spark calls it with whole columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal as PythonDecimal
from typing import Any, TypeAlias

import pyarrow as pa

from semel.spark.pipeline.avro_schema import (
    Array,
    BadAvro,
    Decimal,
    Fixed,
    Map,
    Node,
    Nullable,
    Record,
    Scalar,
    Symbols,
)

Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""From bytes and a position to a value and the position after it."""

_MOST_VARINT_BITS = 70
_ARROW = {
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BINARY": pa.binary(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}


def arrow_type(node: Node) -> pa.DataType:
    if isinstance(node, Nullable):
        return arrow_type(node.inner)
    if isinstance(node, Record):
        return pa.struct([pa.field(field.name, arrow_type(field.node)) for field in node.fields])
    if isinstance(node, Array):
        return pa.list_(arrow_type(node.items))
    if isinstance(node, Map):
        return pa.map_(pa.string(), arrow_type(node.values))
    if isinstance(node, Decimal):
        return pa.decimal128(node.precision, node.digits)
    return _ARROW[node.sql]


class Decoder:
    """Reads a column of values into a column of `row` and `error`: of each, one is null."""

    def __init__(self, schema: Record) -> None:
        self._names = [field.name for field in schema.fields]
        self._types = [arrow_type(field.node) for field in schema.fields]
        self._readers = [_reader(field.node) for field in schema.fields]

    def decode(self, values: Sequence[bytes | None]) -> pa.StructArray:
        columns: list[list[Any]] = [[] for _ in self._readers]
        errors: list[str | None] = []
        for value in values:
            try:
                row: Sequence[Any] = [None] * len(columns) if value is None else self.row(value)
                errors.append(None)
            except BadAvro as error:
                row = [None] * len(columns)
                errors.append(str(error))
            for column, part in zip(columns, row, strict=True):
                column.append(part)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, self._types, strict=True)]
        absent = pa.array([error is not None for error in errors], pa.bool_())
        rows = pa.StructArray.from_arrays(arrays, self._names, mask=absent)
        return pa.StructArray.from_arrays([rows, pa.array(errors, pa.string())], ["row", "error"])

    def row(self, value: bytes) -> list[Any]:
        position, row = 0, []
        for read in self._readers:
            part, position = read(value, position)
            row.append(part)
        if position != len(value):
            raise BadAvro(f"{len(value) - position} bytes are left after the value")
        return row


def _reader(node: Node) -> Reader:
    if isinstance(node, Nullable):
        return _nullable_reader(node)
    if isinstance(node, Scalar):
        return _scaled(_SCALARS[node.name], node.scale)
    if isinstance(node, Fixed):
        return lambda data, position: _slice(data, position, node.size)
    if isinstance(node, Decimal):
        return _decimal_reader(node)
    if isinstance(node, Symbols):
        return _symbol_reader(node)
    if isinstance(node, Record):
        return _record_reader(node)
    return _blocks_reader(node)


def _long(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= _MOST_VARINT_BITS:
                raise BadAvro(f"the number at byte {position} does not end")
    except IndexError:
        raise _short(position) from None
    value = (number >> 1) ^ -(number & 1)
    if not -(1 << 63) <= value < 1 << 63:
        raise BadAvro(f"the number before byte {position} has more than 64 bits")
    return value, position


def _int(data: bytes, position: int) -> tuple[int, int]:
    value, position = _long(data, position)
    if not -(1 << 31) <= value < 1 << 31:
        raise BadAvro(f"the number before byte {position} has more than 32 bits")
    return value, position


def _boolean(data: bytes, position: int) -> tuple[bool, int]:
    part, position = _slice(data, position, 1)
    if part not in (b"\0", b"\1"):
        raise BadAvro(f"the byte before {position} is neither true nor false")
    return part == b"\1", position


def _float(data: bytes, position: int) -> tuple[float, int]:
    part, position = _slice(data, position, 4)
    return struct.unpack("<f", part)[0], position


def _double(data: bytes, position: int) -> tuple[float, int]:
    part, position = _slice(data, position, 8)
    return struct.unpack("<d", part)[0], position


def _bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = _long(data, position)
    return _slice(data, position, size)


def _string(data: bytes, position: int) -> tuple[str, int]:
    part, position = _bytes(data, position)
    try:
        return part.decode(), position
    except UnicodeDecodeError:
        raise BadAvro(f"the text before byte {position} is not UTF-8") from None


def _slice(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    end = position + size
    if size < 0 or end > len(data):
        raise _short(position)
    return data[position:end], end


def _short(position: int) -> BadAvro:
    return BadAvro(f"the value ends too early: at byte {position} more is expected")


_SCALARS: dict[str, Reader] = {
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _scaled(read: Reader, scale: int) -> Reader:
    if scale == 1:
        return read

    def scaled(data: bytes, position: int) -> tuple[int, int]:
        value, position = read(data, position)
        if not -(1 << 63) <= value * scale < 1 << 63:
            raise BadAvro(f"the time before byte {position} is out of range")
        return value * scale, position

    return scaled


def _nullable_reader(node: Nullable) -> Reader:
    read, null_branch = _reader(node.inner), node.null_branch
    other = 1 - null_branch if null_branch >= 0 else 0

    def nullable(data: bytes, position: int) -> tuple[Any, int]:
        branch, position = _long(data, position)
        if branch == other:
            return read(data, position)
        if branch == null_branch:
            return None, position
        raise BadAvro(f"the union before byte {position} has no branch {branch}")

    return nullable


def _decimal_reader(node: Decimal) -> Reader:
    limit = 10**node.precision

    def decimal(data: bytes, position: int) -> tuple[PythonDecimal, int]:
        part, position = _bytes(data, position) if node.size is None else _slice(data, position, node.size)
        number = int.from_bytes(part, "big", signed=True)
        if abs(number) >= limit:
            raise BadAvro(f"the decimal before byte {position} has more than {node.precision} digits")
        return _decimal_of(number, node.digits), position

    return decimal


def _decimal_of(number: int, digits: int) -> PythonDecimal:
    """Built from its parts: arithmetic would round to the context's precision."""
    return PythonDecimal((int(number < 0), tuple(map(int, str(abs(number)))), -digits))


def _symbol_reader(node: Symbols) -> Reader:
    names = node.names

    def symbol(data: bytes, position: int) -> tuple[str, int]:
        number, position = _long(data, position)
        if not 0 <= number < len(names):
            raise BadAvro(f"the enum before byte {position} has no symbol {number}")
        return names[number], position

    return symbol


def _record_reader(node: Record) -> Reader:
    readers = [(field.name, _reader(field.node)) for field in node.fields]

    def record(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        found = {}
        for name, read in readers:
            found[name], position = read(data, position)
        return found, position

    return record


def _blocks_reader(node: Array | Map) -> Reader:
    """Arrays, and maps as lists of pairs. Every item takes a byte, but for those without content: so a count is bounded
    by the bytes that are there, and by what a record may hold."""
    if isinstance(node, Array):
        read = _reader(node.items)
    else:
        read_value = _reader(node.values)

        def read(data: bytes, position: int) -> tuple[Any, int]:
            key, position = _string(data, position)
            value, position = read_value(data, position)
            return (key, value), position

    def blocks(data: bytes, position: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, position = _long(data, position)
            if count == 0:
                return found, position
            if count < 0:
                count = -count
                _, position = _long(data, position)
            if count + len(found) > max(len(data), 1):
                raise BadAvro(f"the list before byte {position} has more items than the value has bytes")
            for _ in range(count):
                item, position = read(data, position)
                found.append(item)

    return blocks
