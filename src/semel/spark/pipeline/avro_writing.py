"""Columns to Avro values: the way back of what `avro_reading` does."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
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

Writer: TypeAlias = Callable[[bytearray, Any], None]

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Encoder:
    """Writes rows, whose columns are found by the names of the schema's fields."""

    def __init__(self, schema: Record) -> None:
        self._write = _record_writer(schema)

    def encode(self, rows: Sequence[Any]) -> pa.Array:
        return pa.array([None if row is None else self.value(row) for row in rows], pa.binary())

    def value(self, row: Any) -> bytes:
        data = bytearray()
        self._write(data, row)
        return bytes(data)


def _writer(node: Node) -> Writer:
    if isinstance(node, Nullable):
        return _nullable_writer(node)
    if isinstance(node, Record):
        return _record_writer(node)
    if isinstance(node, Array):
        return _array_writer(node)
    if isinstance(node, Map):
        return _map_writer(node)
    if isinstance(node, Scalar):
        return _needed(_scalar_writer(node))
    if isinstance(node, Decimal):
        return _needed(_decimal_writer(node))
    if isinstance(node, Fixed):
        return _needed(_fixed_writer(node))
    return _needed(_symbol_writer(node))


def _needed(write: Writer) -> Writer:
    def needed(data: bytearray, value: Any) -> None:
        if value is None:
            raise BadAvro("null is not in the schema here: make the type a union with null")
        write(data, value)

    return needed


def put_long(data: bytearray, value: int) -> None:
    number = (value << 1) ^ (value >> 63)
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)


def _put_bytes(data: bytearray, value: bytes) -> None:
    put_long(data, len(value))
    data += value


_PUT: dict[str, Writer] = {
    "boolean": lambda data, value: data.append(1 if value else 0),
    "int": put_long,
    "long": put_long,
    "float": lambda data, value: data.extend(struct.pack("<f", value)),
    "double": lambda data, value: data.extend(struct.pack("<d", value)),
    "bytes": _put_bytes,
    "string": lambda data, value: _put_bytes(data, value.encode()),
}


def _scalar_writer(node: Scalar) -> Writer:
    if node.sql == "DATE":
        return lambda data, value: put_long(data, (value - _EPOCH_DAY).days)
    if node.sql in ("TIMESTAMP", "TIMESTAMP_NTZ"):

        def put_time(data: bytearray, value: datetime) -> None:
            since = value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)
            put_long(data, since // _MICROSECOND // node.scale)

        return put_time
    return _PUT[node.name]


def _decimal_writer(node: Decimal) -> Writer:
    def put_decimal(data: bytearray, value: PythonDecimal) -> None:
        number = _unscaled(value, node.digits)
        size = node.size or (number.bit_length() + 8) // 8
        try:
            part = number.to_bytes(size, "big", signed=True)
        except OverflowError:
            raise BadAvro(f"{value} does not fit a decimal of {size} bytes") from None
        if node.size is None:
            _put_bytes(data, part)
        else:
            data += part

    return put_decimal


def _unscaled(value: PythonDecimal, digits: int) -> int:
    """From its parts: arithmetic of decimals rounds to the precision of their context, 28 digits."""
    sign, figures, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent < -digits:
        raise BadAvro(f"{value} has more than {digits} digits after the point, or is no number")
    number: int = int("".join(map(str, figures))) * 10 ** (exponent + digits)
    return -number if sign else number


def _fixed_writer(node: Fixed) -> Writer:
    def put_fixed(data: bytearray, value: bytes) -> None:
        if len(value) != node.size:
            raise BadAvro(f"{len(value)} bytes do not fit a fixed type of {node.size}")
        data += value

    return put_fixed


def _symbol_writer(node: Symbols) -> Writer:
    numbers = {name: number for number, name in enumerate(node.names)}

    def put_symbol(data: bytearray, value: str) -> None:
        if value not in numbers:
            raise BadAvro(f"{value!r} is none of the enum's symbols")
        put_long(data, numbers[value])

    return put_symbol


def _nullable_writer(node: Nullable) -> Writer:
    write, null_branch = _writer(node.inner), node.null_branch
    other = 1 - null_branch if null_branch >= 0 else 0

    def put_nullable(data: bytearray, value: Any) -> None:
        if value is None and null_branch >= 0:
            put_long(data, null_branch)
        else:
            put_long(data, other)
            write(data, value)

    return put_nullable


def _record_writer(node: Record) -> Writer:
    writers = [(field.name, _writer(field.node)) for field in node.fields]

    def put_record(data: bytearray, value: Any) -> None:
        for name, write in writers:
            try:
                write(data, value[name])
            except BadAvro as error:
                raise BadAvro(f"{name}: {error}") from None

    return _needed(put_record)


def _array_writer(node: Array) -> Writer:
    write = _writer(node.items)

    def put_array(data: bytearray, value: Sequence[Any]) -> None:
        if value:
            put_long(data, len(value))
            for item in value:
                write(data, item)
        data.append(0)

    return _needed(put_array)


def _map_writer(node: Map) -> Writer:
    write = _writer(node.values)

    def put_map(data: bytearray, value: Any) -> None:
        pairs = list(value.items() if isinstance(value, dict) else value)
        if pairs:
            put_long(data, len(pairs))
            for name, item in pairs:
                _put_bytes(data, name.encode())
                write(data, item)
        data.append(0)

    return _needed(put_map)
