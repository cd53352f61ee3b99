"""JSON in the registry's framing, with a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from semel.client.serialization import SerializationContext
from semel.serializers.errors import needed
from semel.serializers.framing import Subjects, framed, schema_of, unframed
from semel.serializers.plain_json import Json
from semel.serializers.registry import JSON, Reference, Schema, SchemaRegistry
from semel.serializers.shapes import is_pydantic
from semel.serializers.subjects import SubjectName, topic_name

T = TypeVar("T")


class JsonSchema(Generic[T]):
    """`JsonSchema(registry, Order)`: as `Json(Order)`, and the schema of the class is registered, or the one that is
    given. What is read has to fit the class; the schema itself is not evaluated here."""

    def __init__(
        self,
        registry: SchemaRegistry,
        kind: type[T],
        schema: str | Mapping[str, Any] | None = None,
        *,
        references: tuple[Reference, ...] = (),
        subject: SubjectName = topic_name,
        register: bool = True,
    ) -> None:
        self._registry = registry
        self._json = Json(kind)
        described: Any = _schema_of(kind) if schema is None else schema
        text = described if isinstance(described, str) else json.dumps(described)
        self._schema = Schema(text, JSON, references)
        self._title = str(json.loads(text).get("title", getattr(kind, "__name__", "")))
        self._subjects = Subjects(registry, subject, is_registered=not register)

    def serialize(self, value: T | None, context: SerializationContext, /) -> bytes | None:
        if value is None:
            return None
        schema_id = self._subjects.schema_id(context, self._title, self._schema)
        return framed(schema_id, self._json.serialize(value) or b"")

    def deserialize(self, data: bytes, context: SerializationContext | None = None, /) -> T:
        schema_id, payload = unframed(data)
        found = schema_of(self._registry, schema_id)
        if found.kind != JSON:
            raise ValueError(f"schema {schema_id} is of kind {found.kind}, not {JSON}")
        return self._json.deserialize(bytes(payload))


def _schema_of(kind: Any) -> dict[str, Any]:
    if is_pydantic(kind):
        return kind.model_json_schema()  # type: ignore[no-any-return]
    return needed("msgspec.json", "a JSON schema of a class", "json").schema(kind)  # type: ignore[no-any-return]
