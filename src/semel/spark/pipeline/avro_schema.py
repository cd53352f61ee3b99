"""Avro schemas: parsed from their JSON form into a tree, with the SQL type of each node.

Served: all primitive and complex types, and the logical types date, timestamp, local timestamp, decimal and uuid. Left
out: unions of more than one type besides null, and types that contain themselves, since columns cannot be such.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

_PRIMITIVES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}
_LOGICAL = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}
_MOST_DIGITS = 38
_MOST_DEPTH = 50


class BadAvroSchema(ValueError):
    """It is no Avro schema, or one that columns cannot hold."""


class BadAvro(ValueError):
    """Bytes that are no value of the schema, or a value that the schema does not have."""


@dataclass(frozen=True)
class Scalar:
    """`name` is the type on the wire; a scale of 1000 turns milliseconds into the microseconds of SQL."""

    name: str
    sql: str
    scale: int = 1


@dataclass(frozen=True)
class Fixed:
    size: int
    sql: str = "BINARY"


@dataclass(frozen=True)
class Decimal:
    """Of bytes, or of a fixed number of them."""

    precision: int
    digits: int
    size: int | None

    @property
    def sql(self) -> str:
        return f"DECIMAL({self.precision},{self.digits})"


@dataclass(frozen=True)
class Symbols:
    names: tuple[str, ...]
    sql: str = "STRING"


@dataclass(frozen=True)
class Array:
    items: Node

    @property
    def sql(self) -> str:
        return f"ARRAY<{self.items.sql}>"


@dataclass(frozen=True)
class Map:
    values: Node

    @property
    def sql(self) -> str:
        return f"MAP<STRING, {self.values.sql}>"


@dataclass(frozen=True)
class Nullable:
    """A union with null; `null_branch` is its number there, None if there is no null in it."""

    inner: Node
    null_branch: int

    @property
    def sql(self) -> str:
        return self.inner.sql


class Field(NamedTuple):
    name: str
    node: Node


@dataclass(frozen=True)
class Record:
    fields: tuple[Field, ...]

    @property
    def sql(self) -> str:
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {field.node.sql}' for field in self.fields)}>"

    @property
    def columns(self) -> str:
        """As the columns of a table."""
        return ", ".join(f"{quoted(field.name)} {field.node.sql}" for field in self.fields)


Node: TypeAlias = Scalar | Fixed | Decimal | Symbols | Array | Map | Nullable | Record


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def parse_schema(text: str) -> Record:
    """Raises BadAvroSchema, which says where in the schema."""
    try:
        read = json.loads(text)
    except ValueError as error:
        raise BadAvroSchema(f"is not JSON: {error}") from None
    node = _Parsing().node(read, "schema", "", 0)
    if not isinstance(node, Record):
        raise BadAvroSchema("must be a record, whose fields become columns")
    return node


class _Parsing:
    def __init__(self) -> None:
        self._named: dict[str, Node | None] = {}
        """None while the type is being read: it must not contain itself."""

    def node(self, given: Any, place: str, namespace: str, depth: int) -> Node:
        if depth > _MOST_DEPTH:
            raise BadAvroSchema(f"{place}: is nested more than {_MOST_DEPTH} deep")
        if isinstance(given, str):
            return self._by_name(given, place, namespace)
        if isinstance(given, list):
            return self._union(given, place, namespace, depth)
        if not isinstance(given, dict):
            raise BadAvroSchema(f"{place}: {given!r} is no type")
        kind = given.get("type")
        if isinstance(kind, dict | list):
            return self.node(kind, place, namespace, depth + 1)
        if kind == "array":
            return Array(self.node(_part(given, "items", place), f"{place}[]", namespace, depth + 1))
        if kind == "map":
            return Map(self.node(_part(given, "values", place), f"{place}{{}}", namespace, depth + 1))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, given, place, namespace, depth)
        if given.get("logicalType") == "decimal" and kind == "bytes":
            return _decimal(given, place, None)
        plain = self._by_name(str(kind), place, namespace)
        logical = (kind, given.get("logicalType"))
        if isinstance(plain, Scalar) and logical in _LOGICAL:
            return Scalar(plain.name, _LOGICAL[logical], 1000 if str(logical[1]).endswith("millis") else 1)
        return plain

    def _by_name(self, name: str, place: str, namespace: str) -> Node:
        if name in _PRIMITIVES:
            return Scalar(name, _PRIMITIVES[name])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self._named:
                found = self._named[candidate]
                if found is None:
                    raise BadAvroSchema(f"{place}: {name} contains itself, and a column cannot")
                return found
        raise BadAvroSchema(f"{place}: {name!r} is no type that is known here")

    def _union(self, given: list[Any], place: str, namespace: str, depth: int) -> Node:
        others = [(number, one) for number, one in enumerate(given) if one != "null"]
        if len(others) != 1 or len(given) > 2:
            raise BadAvroSchema(f"{place}: a union can be of null and one other type; a column has one type")
        number, inner = others[0]
        node = self.node(inner, place, namespace, depth + 1)
        return Nullable(node, 1 - number if len(given) == 2 else -1)

    def _define(self, kind: str, given: Mapping[str, Any], place: str, namespace: str, depth: int) -> Node:
        name = _part(given, "name", place)
        space = name.rpartition(".")[0] or given.get("namespace", namespace)
        full = name if "." in name or not space else f"{space}.{name}"
        self._named[full] = None
        made = self._named[full] = self._defined(kind, given, place, space, depth)
        return made

    def _defined(self, kind: str, given: Mapping[str, Any], place: str, namespace: str, depth: int) -> Node:
        if kind == "enum":
            return Symbols(tuple(str(symbol) for symbol in _part(given, "symbols", place)))
        if kind == "fixed":
            size = _part(given, "size", place)
            if type(size) is not int or size < 0:
                raise BadAvroSchema(f"{place}: the size {size!r} is no number of bytes")
            return _decimal(given, place, size) if given.get("logicalType") == "decimal" else Fixed(size)
        fields = _part(given, "fields", place)
        if not isinstance(fields, list) or not fields:
            raise BadAvroSchema(f"{place}: a record needs fields")
        made = []
        for field in fields:
            name = str(_part(field, "name", f"{place}.fields"))
            made.append(
                Field(name, self.node(_part(field, "type", f"{place}.{name}"), f"{place}.{name}", namespace, depth + 1))
            )
        return Record(tuple(made))


def _part(given: Any, name: str, place: str) -> Any:
    if not isinstance(given, dict) or name not in given:
        raise BadAvroSchema(f"{place}: {name!r} is missing")
    return given[name]


def _decimal(given: Mapping[str, Any], place: str, size: int | None) -> Decimal:
    precision, digits = given.get("precision"), given.get("scale", 0)
    if type(precision) is not int or not 1 <= precision <= _MOST_DIGITS or type(digits) is not int:
        raise BadAvroSchema(f"{place}: a decimal needs a precision of 1 to {_MOST_DIGITS}")
    if not 0 <= digits <= precision:
        raise BadAvroSchema(f"{place}: the scale {digits} of a decimal is not within its precision")
    return Decimal(precision, digits, size)
