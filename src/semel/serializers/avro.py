"""Avro in the registry's framing, by fastavro. The writer's schema comes from the registry, the reader's is our own."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Generic, TypeVar, overload

from semel.client.errors import BadSetting
from semel.client.serialization import NotReady, SerializationContext
from semel.serializers.errors import needed
from semel.serializers.framing import Subjects, framed, schema_of, unframed
from semel.serializers.registry import AVRO, Reference, Schema, SchemaRegistry
from semel.serializers.shapes import maker, plain
from semel.serializers.subjects import SubjectName, topic_name

T = TypeVar("T")


class Avro(Generic[T]):
    """`Avro(registry, schema)` writes dicts that fit the schema and reads them; `Avro(registry, schema, Order)` objects
    of a class. Without a schema it only reads, as records were written.

    A schema is registered when it is first used; with `register=False` it must be in the registry. `references` are
    the schemas that it names.
    """

    @overload
    def __init__(
        self: Avro[Any],
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | None = None,
        kind: None = None,
        *,
        references: tuple[Reference, ...] = (),
        subject: SubjectName = topic_name,
        register: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any],
        kind: type[T],
        *,
        references: tuple[Reference, ...] = (),
        subject: SubjectName = topic_name,
        register: bool = True,
    ) -> None: ...
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Any = None,
        kind: Any = None,
        *,
        references: tuple[Reference, ...] = (),
        subject: SubjectName = topic_name,
        register: bool = True,
    ) -> None:
        self._fastavro: Any = needed("fastavro", "Avro", "avro")
        self._registry = registry
        self._make = maker(kind)
        self._subjects = Subjects(registry, subject, is_registered=not register)
        self._parsed: dict[Schema, Any] = {}
        self._schema: Schema | None = None
        if schema is not None:
            text = schema if isinstance(schema, str) else json.dumps(schema)
            self._schema = Schema(text, AVRO, references)
            if not references:
                try:
                    self._parse(self._schema)
                except Exception as error:
                    raise BadSetting(f"not a valid Avro schema: {error}") from error

    def serialize(self, value: T | None, context: SerializationContext, /) -> bytes | None:
        if value is None:
            return None
        if self._schema is None:
            raise BadSetting("Avro needs a schema to write by: Avro(registry, schema)")
        parsed = self._parse(self._schema)
        schema_id = self._subjects.schema_id(context, _name(parsed), self._schema)
        payload = io.BytesIO()
        self._fastavro.schemaless_writer(payload, parsed, plain(value))
        return framed(schema_id, payload.getvalue())

    def deserialize(self, data: bytes, context: SerializationContext | None = None, /) -> T:
        schema_id, payload = unframed(data)
        writer = self._parse(schema_of(self._registry, schema_id))
        reader = None if self._schema is None else self._parse(self._schema)
        return self._make(self._fastavro.schemaless_reader(io.BytesIO(payload), writer, reader))  # type: ignore[no-any-return]

    def _parse(self, schema: Schema) -> Any:
        """With all that it refers to. Raises NotReady while some of that is not known."""
        found = self._parsed.get(schema)
        if found is None:
            if schema.references and not _references_known(self._registry, schema):
                raise NotReady(partial(_fetch_references, self._registry, schema))
            names: dict[str, Any] = {}
            for each in _with_references(self._registry, schema):
                found = self._fastavro.parse_schema(json.loads(each.text), named_schemas=names)
            self._parsed[schema] = found
        return found


def _with_references(registry: SchemaRegistry, schema: Schema) -> list[Schema]:
    """What it refers to first. Asks the registry for what is not known."""
    found = [
        each
        for reference in schema.references
        for each in _with_references(registry, registry.version(reference.subject, reference.version).schema)
    ]
    return [*dict.fromkeys(found), schema]


def _references_known(registry: SchemaRegistry, schema: Schema) -> bool:
    return all(
        (known := registry.known_version(reference.subject, reference.version)) is not None
        and _references_known(registry, known.schema)
        for reference in schema.references
    )


def _fetch_references(registry: SchemaRegistry, schema: Schema) -> None:
    _with_references(registry, schema)


def _name(parsed: Any) -> str:
    """The full name of a record; of a plain type its own."""
    return str(parsed.get("name") or parsed.get("type")) if isinstance(parsed, dict) else str(parsed)
