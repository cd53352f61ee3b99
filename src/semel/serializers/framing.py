"""The registry's framing: a zero, the schema's id in four bytes, then what the schema describes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from semel.client.serialization import NotReady, SerializationContext
from semel.serializers.errors import NotFramed
from semel.serializers.registry import Schema, SchemaRegistry
from semel.serializers.subjects import SubjectName

HEADER_BYTES = 5


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def unframed(data: bytes) -> tuple[int, memoryview]:
    """Raises NotFramed."""
    if len(data) < HEADER_BYTES or data[0] != 0:
        begin = data[:HEADER_BYTES].hex(" ") or "nothing"
        raise NotFramed(
            f"the bytes are not framed as the schema registry does: 00 and an id, but they begin with {begin}"
        )
    return int.from_bytes(data[1:HEADER_BYTES], "big"), memoryview(data)[HEADER_BYTES:]


def schema_of(registry: SchemaRegistry, schema_id: int, form: str = "") -> Schema:
    """Raises NotReady until it was fetched, and RegistryRefused if there is none of this id."""
    found = registry.known(schema_id, form)
    if found is None:
        raise NotReady(partial(registry.fetch, schema_id, form))
    return found


class Subjects:
    """The id of one schema under each subject: registered when it is first used, or only looked up."""

    def __init__(self, registry: SchemaRegistry, name: SubjectName, *, is_registered: bool) -> None:
        """`is_registered`: the schema must be there already."""
        self._registry = registry
        self._name = name
        self._ask: Callable[[str, Schema], int] = registry.lookup if is_registered else registry.register

    def schema_id(self, context: SerializationContext, record: str, schema: Schema) -> int:
        """Raises NotReady until the registry has told it."""
        subject = self._name(context, record)
        found = self._registry.known_id(subject, schema)
        if found is None:
            raise NotReady(partial(self._ask, subject, schema))
        return found
