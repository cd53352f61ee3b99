"""Avro values: read and written by hand, checked against bytes of the specification, and against hostile ones."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.spark.pipeline.avro_reading import Decoder
from semel.spark.pipeline.avro_schema import BadAvro, BadAvroSchema, parse_schema
from semel.spark.pipeline.avro_writing import Encoder

LARGEST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def schema(*fields: tuple[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields]})


def decoded(text: str, *values: bytes | None) -> list[Any]:
    return Decoder(parse_schema(text)).decode(values).to_pylist()


def good(text: str, value: bytes) -> Any:
    (row,) = decoded(text, value)
    assert row["error"] is None, row["error"]
    return row["row"]


def encoded(text: str, row: Any) -> bytes:
    return Encoder(parse_schema(text)).value(row)


def test_values_are_those_of_the_specification() -> None:
    # Its own examples: 27 is 36, "foo" is 06 66 6f 6f, [3, 27] is 04 06 36 00, "a" in a union is 02 02 61.
    assert good(schema(("a", "long"), ("b", "string")), bytes.fromhex("3606666f6f")) == {"a": 27, "b": "foo"}
    assert good(schema(("a", {"type": "array", "items": "long"})), bytes.fromhex("04063600")) == {"a": [3, 27]}
    assert good(schema(("a", ["null", "string"])), bytes.fromhex("020261")) == {"a": "a"}
    assert good(schema(("a", ["null", "string"])), b"\0") == {"a": None}
    assert good(schema(("a", ["string", "null"])), b"\2") == {"a": None}
    numbers = {0: "00", -1: "01", 1: "02", -2: "03", 2: "04", -64: "7f", 64: "8001"}
    for number, hexadecimal in numbers.items():
        assert good(schema(("a", "long")), bytes.fromhex(hexadecimal)) == {"a": number}


def test_a_list_may_come_in_blocks_that_tell_their_size() -> None:
    blocks = bytes.fromhex("03040636" + "0202" + "00")  # two items in a block of two bytes, then one, then the end

    assert good(schema(("a", {"type": "array", "items": "long"})), blocks) == {"a": [3, 27, 1]}


def test_logical_types_become_times_and_decimals() -> None:
    fields = [
        ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
        ("us", {"type": "long", "logicalType": "timestamp-micros"}),
        ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("price", {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 8, "scale": 2}),
        ("id", {"type": "string", "logicalType": "uuid"}),
    ]
    row = {
        "ms": datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        "us": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "local": datetime(2024, 1, 2),
        "day": date(1969, 12, 31),
        "price": Decimal("-123.45"),
        "id": "6f9619ff-8b86-d011-b42d-00c04fc964ff",
    }
    text = schema(*fields)

    assert good(text, encoded(text, row)) == row
    assert encoded(schema(fields[3]), row) == b"\x01"


def test_columns_are_declared_in_sql() -> None:
    fields = [
        ("a b", "long"),
        ("m", {"type": "map", "values": ["null", "bytes"]}),
        ("r", {"type": "record", "name": "I", "fields": [{"name": "x", "type": {"type": "array", "items": "float"}}]}),
        ("d", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}),
    ]

    assert parse_schema(schema(*fields)).columns == (
        "`a b` BIGINT, `m` MAP<STRING, BINARY>, `r` STRUCT<`x`: ARRAY<FLOAT>>, `d` DECIMAL(4,1)"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ('"long"', "must be a record"),
        (schema(("a", "lnog")), "schema.a: 'lnog' is no type that is known here"),
        (schema(("a", ["int", "string"])), "schema.a: a union can be of null and one other type"),
        (schema(("a", ["null", "R"])), "schema.a: R contains itself, and a column cannot"),
        (schema(("a", {"type": "array"})), "schema.a: 'items' is missing"),
        (
            schema(("a", {"type": "bytes", "logicalType": "decimal"})),
            "schema.a: a decimal needs a precision of 1 to 38",
        ),
        (schema(), "schema: a record needs fields"),
        (schema(("a", {"type": "fixed", "name": "F", "size": -1})), "schema.a: the size -1 is no number of bytes"),
    ],
)
def test_a_schema_that_columns_cannot_hold_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(BadAvroSchema) as caught:
        parse_schema(text)
    assert problem in str(caught.value)


def test_a_named_type_can_be_used_again() -> None:
    color = {"type": "enum", "name": "Color", "namespace": "n", "symbols": ["RED", "BLUE"]}
    text = schema(("a", color), ("b", "n.Color"))

    assert good(text, b"\x02\x00") == {"a": "BLUE", "b": "RED"}


def test_a_bad_value_leaves_the_others_alone() -> None:
    rows = decoded(schema(("a", "long"), ("b", "string")), b"\x02\x02x", b"\x02\x08x", None, b"\x04\x02y")

    assert rows == [
        {"row": {"a": 1, "b": "x"}, "error": None},
        {"row": None, "error": "the value ends too early: at byte 2 more is expected"},
        {"row": {"a": None, "b": None}, "error": None},
        {"row": {"a": 2, "b": "y"}, "error": None},
    ]


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("long", b"", "ends too early"),
        ("long", b"\x02\x00", "1 bytes are left after the value"),
        ("long", b"\x80", "ends too early"),
        ("long", b"\xff" * 11, "does not end"),
        ("long", b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        ("int", b"\x80\x80\x80\x80\x20", "more than 32 bits"),
        ("boolean", b"\x02", "neither true nor false"),
        ("string", b"\x02\xff", "is not UTF-8"),
        ("bytes", b"\x01", "ends too early"),
        (["null", "long"], b"\x04", "has no branch 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "has no symbol 1"),
        ({"type": "array", "items": "long"}, LARGEST, "more items than the value"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64", "more than 2 digits"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            LARGEST,
            "out of range",
        ),
    ],
)
def test_bytes_that_are_no_value_are_refused_with_a_reason(kind: Any, value: bytes, problem: str) -> None:
    (row,) = decoded(schema(("a", kind)), value)

    assert problem in row["error"]


def test_null_where_the_schema_has_none_is_refused_by_name() -> None:
    with pytest.raises(BadAvro, match="a: null is not in the schema here"):
        encoded(schema(("a", "long")), {"a": None})


FULL = schema(
    ("a", "long"),
    ("b", ["null", "string"]),
    ("c", {"type": "array", "items": ["null", "double"]}),
    ("d", {"type": "map", "values": "bytes"}),
    ("e", {"type": "record", "name": "E", "fields": [{"name": "x", "type": "boolean"}, {"name": "y", "type": "int"}]}),
    ("f", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}),
    ("g", {"type": "long", "logicalType": "timestamp-micros"}),
)
ROWS = st.fixed_dictionaries(
    {
        "a": INT64,
        "b": st.none() | st.text(),
        "c": st.lists(st.none() | st.floats(allow_nan=False), max_size=5),
        "d": st.dictionaries(st.text(max_size=5), st.binary(max_size=20), max_size=4),
        "e": st.fixed_dictionaries({"x": st.booleans(), "y": st.integers(-(1 << 31), (1 << 31) - 1)}),
        "f": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: Decimal(f"{number}E-10")),
        "g": st.integers(0, 4 * 10**15).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)),
    }
)


@given(ROWS)
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read_again(row: dict[str, Any]) -> None:
    read = good(FULL, encoded(FULL, row))

    assert read == {**row, "d": list(row["d"].items())}


@given(ROWS, st.data())
@settings(max_examples=60, deadline=None)
def test_every_truncation_is_refused(row: dict[str, Any], data: st.DataObject) -> None:
    value = encoded(FULL, row)
    cut = data.draw(st.integers(0, len(value) - 1))

    assert decoded(FULL, value[:cut])[0]["error"] is not None


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    (row,) = decoded(FULL, value)

    assert (row["row"] is None) == (row["error"] is not None)


def test_a_decimal_that_does_not_fit_is_refused() -> None:
    kind = {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 1}
    with pytest.raises(BadAvro, match="does not fit a decimal of 1 bytes"):
        encoded(schema(("a", kind)), {"a": Decimal("99.9")})
    with pytest.raises(BadAvro, match="more than 1 digits after the point"):
        encoded(schema(("a", kind)), {"a": Decimal("9.99")})


def test_floats_keep_infinities_and_nan() -> None:
    text = schema(("a", "double"), ("b", "float"))
    read = good(text, encoded(text, {"a": math.inf, "b": math.nan}))

    assert read["a"] == math.inf
    assert math.isnan(read["b"])
