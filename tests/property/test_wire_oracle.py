"""Byte equality with kio, an independent implementation of the protocol made from Kafka's own definitions.

Our bytes are read by kio, its values compared with ours field by field, and kio's bytes for them compared with ours.
kio's native reader ends the process on some malformed bytes, so it is given nothing but messages we encoded.
"""

import dataclasses
import io
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import classify_field, is_optional
from kio.static.constants import EntityType
from wire_samples import API_MESSAGES, LONGER, random_messages, versions

from semel.wire.apis import API
from semel.wire.codec import encode
from semel.wire.schema import NO_UUID, ApiMessage, Message, Request, Struct, layout

SAMPLES = 30 * LONGER
# Key and version of what Kafka 4.4 added and kio does not know; tests/unit/wire has the bytes of Kafka's encoder.
NEWER_THAN_KIO = {(18, 5), (28, 6), (42, 3)}


def known_versions(cls: type[ApiMessage]) -> list[int]:
    return [version for version in versions(cls) if (cls.api_key, version) not in NEWER_THAN_KIO]


def kio_class(cls: type[ApiMessage], version: int) -> Any:
    """kio's class for the same message."""
    entity_type = EntityType.request if issubclass(cls, Request) else EntityType.response
    entities: Any = schema_name_map[API[cls.api_key].module][version]
    module, _, name = entities[entity_type].partition(":")
    return getattr(import_module(module), name)


def comparable(value: Any) -> Any:
    """A value of kio's in our terms."""
    if value is None or isinstance(value, bool | str | bytes | float):
        return value
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return int(value)


def assert_same(ours: Struct, theirs: Any, version: int) -> None:
    names = [name for name, field in ours._fields.items() if field.since <= version <= field.until]
    their_fields = dataclasses.fields(theirs)
    assert len(names) == len(their_fields), (type(ours), names, [field.name for field in their_fields])
    for name, their_field in zip(names, their_fields, strict=True):
        value, their_value = getattr(ours, name), getattr(theirs, their_field.name)
        if isinstance(value, list | tuple):
            assert len(value) == len(their_value)
            for element, their_element in zip(value, their_value, strict=True):
                assert_same_value(element, their_element, version)
        else:
            assert_same_value(value, their_value, version)


def assert_same_value(ours: Any, theirs: Any, version: int) -> None:
    if isinstance(ours, Struct):
        assert_same(ours, theirs, version)
    elif dataclasses.is_dataclass(theirs):
        assert ours is None, "a tagged struct that is absent holds its defaults in kio"
    elif theirs is None:
        # kio calls the zero id, and the timestamp -1, None.
        assert ours in (None, NO_UUID, -1)
    else:
        assert ours == comparable(theirs)


def differential_check(cls: type[ApiMessage], version: int, message: Message) -> None:
    their_class = kio_class(cls, version)
    encoded = encode(message, version)
    theirs, size = entity_reader(their_class)(encoded, 0)
    assert size == len(encoded)
    assert_same(message, theirs, version)
    written = io.BytesIO()
    entity_writer(their_class)(written, theirs)
    assert written.getvalue() == encoded


def assert_described_alike(cls: type[Struct], theirs: Any, version: int, flexible: bool) -> None:
    """The same names in the same order, null where kio allows it and nowhere else, the same defaults."""
    shape = layout(cls, version, flexible)
    ours = {entry.name: entry for entry in [*shape.plain, *shape.tagged]}
    names = [name for name in cls._fields if name in ours]
    for name, their_field in zip(names, dataclasses.fields(theirs), strict=True):
        entry, where = ours[name], (cls.__name__, name, version)
        assert name.removesuffix("_ms") == their_field.name.replace("enable2_pc", "enable_2pc").removesuffix(
            "_ms"
        ).removesuffix("_"), where
        # kio calls the zero id, and the timestamp -1, None.
        has_none_of_its_own = their_field.metadata.get("kafka_type") in ("uuid", "datetime_i64")
        if entry.tag is None and not has_none_of_its_own:
            assert entry.is_nullable == is_optional(their_field), where
        if entry.struct is not None:
            assert_described_alike(entry.struct, classify_field(their_field).type_, version, flexible)
        elif their_field.default is not dataclasses.MISSING:
            default = their_field.default if entry.is_array else comparable(their_field.default)
            expected = (None, NO_UUID, -1) if default is None and has_none_of_its_own else (default,)
            assert entry.described.default in expected, where


@pytest.mark.parametrize("cls", API_MESSAGES, ids=lambda cls: cls.__name__)
def test_kio_describes_the_same_fields(cls: type[ApiMessage]) -> None:
    for version in known_versions(cls):
        assert_described_alike(cls, kio_class(cls, version), version, version >= cls.flexible_from)


@pytest.mark.parametrize("cls", API_MESSAGES, ids=lambda cls: cls.__name__)
def test_kio_reads_and_writes_the_same_bytes(cls: type[ApiMessage]) -> None:
    for version in known_versions(cls):
        for message in random_messages(cls, version, SAMPLES, seed=3):
            differential_check(cls, version, message)
