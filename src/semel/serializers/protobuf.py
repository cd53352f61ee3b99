"""Protobuf in the registry's framing: behind the schema's id stands which message of its file it is."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any, Generic, TypeVar

from semel.client.errors import BadSetting
from semel.client.serialization import NotReady, SerializationContext
from semel.serializers.errors import needed
from semel.serializers.framing import Subjects, framed, schema_of, unframed
from semel.serializers.registry import PROTOBUF, Reference, Schema, SchemaRegistry
from semel.serializers.subjects import SubjectName, topic_name

T = TypeVar("T")

_LIBRARY = "google/protobuf/"
"""Files that every Protobuf library has: they are not registered."""


class Protobuf(Generic[T]):
    """`Protobuf(registry, Order)`, with a class that protoc has made. Files that its file imports are registered under
    their own names, and referred to."""

    def __init__(
        self,
        registry: SchemaRegistry,
        kind: type[T],
        *,
        subject: SubjectName = topic_name,
        register: bool = True,
    ) -> None:
        needed("google.protobuf", "Protobuf", "protobuf")
        descriptor: Any = getattr(kind, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(kind, "FromString"):
            raise BadSetting(f"{kind!r} is no class that protoc has made")
        self._registry = registry
        self._kind: Any = kind
        self._name = str(descriptor.full_name)
        self._index = index_bytes(_index(descriptor))
        self._file: Any = descriptor.file
        self._schema: Schema | None = None
        self._subjects = Subjects(registry, subject, is_registered=not register)
        self._is_registered = not register

    def serialize(self, value: T | None, context: SerializationContext, /) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, self._kind):
            raise TypeError(f"it is a {type(value).__name__}, not a {self._name}")
        if self._schema is None:
            self._schema = self._without_imports() or self._schema
        if self._schema is None:
            raise NotReady(self._register_imports)
        schema_id = self._subjects.schema_id(context, self._name, self._schema)
        return framed(schema_id, self._index + value.SerializeToString())

    def deserialize(self, data: bytes, context: SerializationContext | None = None, /) -> T:
        schema_id, payload = unframed(data)
        found = schema_of(self._registry, schema_id)
        if found.kind != PROTOBUF:
            raise ValueError(f"schema {schema_id} is of kind {found.kind}, not {PROTOBUF}")
        _, start = read_index(payload)
        return self._kind.FromString(bytes(payload[start:]))  # type: ignore[no-any-return]

    def _without_imports(self) -> Schema | None:
        return None if _imports(self._file) else Schema(_text(self._file), PROTOBUF)

    def _register_imports(self) -> None:
        self._schema = _registered(self._registry, self._file, is_registered=self._is_registered)


def _imports(file: Any) -> list[Any]:
    return [one for one in file.dependencies if not one.name.startswith(_LIBRARY)]


def _text(file: Any) -> str:
    """As the registry takes a file that was compiled already."""
    return base64.b64encode(file.serialized_pb).decode()


def _registered(registry: SchemaRegistry, file: Any, *, is_registered: bool) -> Schema:
    """The schema of a file, with everything that it imports in the registry."""
    references = []
    for one in _imports(file):
        schema = _registered(registry, one, is_registered=is_registered)
        (registry.lookup if is_registered else registry.register)(one.name, schema)
        references.append(Reference(one.name, one.name, registry.latest(one.name).version))
    return Schema(_text(file), PROTOBUF, tuple(references))


def _index(descriptor: Any) -> list[int]:
    """The place of a message in its file, from the outermost one on."""
    outer = descriptor.containing_type
    if outer is not None:
        return [*_index(outer), [one.full_name for one in outer.nested_types].index(descriptor.full_name)]
    return [list(descriptor.file.message_types_by_name).index(descriptor.name)]


def index_bytes(index: list[int]) -> bytes:
    """Zigzag varints, with their number before them; the first message of a file is a single zero."""
    if index == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(index), *index))


def read_index(payload: memoryview) -> tuple[list[int], int]:
    """The place of the message, and where it begins."""
    count, position = _read_varint(payload, 0)
    if count == 0:
        return [0], position
    index = []
    for _ in range(count):
        number, position = _read_varint(payload, position)
        index.append(number)
    return index, position


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _read_varint(payload: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(payload) or shift > 28:
            raise ValueError("the place of the message in its file cannot be read")
        byte = payload[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number >> 1, position


class AnyMessage:
    """Messages of classes that only the registry knows, as JSON: made of the descriptors that it has."""

    def __init__(self, registry: SchemaRegistry) -> None:
        needed("google.protobuf", "to decode Protobuf", "protobuf")
        self._registry = registry
        self._files: dict[int, Any] = {}

    def json(self, schema_id: int, payload: memoryview) -> bytes:
        from google.protobuf import json_format, message_factory

        index, start = read_index(payload)
        file = self._files.get(schema_id)
        if file is None:
            file = self._files[schema_id] = self._file(schema_id)
        descriptor = list(file.message_types_by_name.values())[index[0]]
        for number in index[1:]:
            descriptor = descriptor.nested_types[number]
        message = message_factory.GetMessageClass(descriptor).FromString(bytes(payload[start:]))
        text: str = json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True)
        return text.encode()

    def _file(self, schema_id: int) -> Any:
        from google.protobuf import descriptor_pool

        schema = schema_of(self._registry, schema_id, "serialized")
        for reference in schema.references:
            if self._registry.known_version(reference.subject, reference.version) is None:
                raise NotReady(partial(_fetch_imports, self._registry, schema))
        pool = descriptor_pool.DescriptorPool()
        return self._add(pool, f"schema-{schema_id}.proto", schema)

    def _add(self, pool: Any, name: str, schema: Schema) -> Any:
        from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, timestamp_pb2, wrappers_pb2

        for reference in schema.references:
            known = self._registry.version(reference.subject, reference.version)
            self._add(pool, reference.name, self._registry.schema(known.schema_id, "serialized"))
        proto = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text))
        for library in (any_pb2, duration_pb2, timestamp_pb2, wrappers_pb2):
            if library.DESCRIPTOR.name in proto.dependency:
                pool.AddSerializedFile(library.DESCRIPTOR.serialized_pb)
        proto.name = name
        pool.Add(proto)
        return pool.FindFileByName(name)


def _fetch_imports(registry: SchemaRegistry, schema: Schema) -> None:
    for reference in schema.references:
        known = registry.version(reference.subject, reference.version)
        _fetch_imports(registry, registry.schema(known.schema_id, "serialized"))
