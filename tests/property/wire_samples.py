"""Random messages for the tests of the wire room, made from the descriptions: the same seed gives the same messages."""

import os
from collections.abc import Iterator
from random import Random
from typing import Any

from semel.wire.apis import API, request_class, response_class
from semel.wire.errors import ErrorCode
from semel.wire.schema import BOOL, BYTES, RECORDS, STRING, UUID, FieldLayout, Kind, Message, Struct, layout
from semel.wire.spec import metadata_records

LONGER = int(os.environ.get("SEMEL_WIRE_TEST_FACTOR", "1"))
"""Multiplies the number of samples: 1 for everyday runs, more for a night."""

API_MESSAGES: list[type[Message]] = [find(key) for key in API for find in (request_class, response_class)]
METADATA_RECORDS: list[type[Message]] = [
    cls
    for cls in vars(metadata_records).values()
    if isinstance(cls, type)
    and issubclass(cls, metadata_records.MetadataRecord)
    and cls is not metadata_records.MetadataRecord
]
ALL_MESSAGES = API_MESSAGES + METADATA_RECORDS

ERROR_CODES = [int(code) for code in ErrorCode]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-._ äß€𝄞\0"


def versions(cls: type[Message]) -> range:
    return range(cls.min_version, cls.max_version + 1)


def random_messages(cls: type[Message], version: int, count: int, seed: int = 1) -> Iterator[Any]:
    """`count` messages of one class and version; the first one is the emptiest."""
    random = Random(f"{cls.__name__} {version} {seed}")
    yield cls()
    for _ in range(count - 1):
        yield random_struct(cls, version, version >= cls.flexible_from, random)


def random_struct(cls: type[Struct], version: int, flexible: bool, random: Random) -> Any:
    shape = layout(cls, version, flexible)
    values = {entry.name: random_value(entry, version, flexible, random) for entry in shape.plain}
    for entry in shape.tagged:
        value = random_value(entry, version, flexible, random)
        # A tagged struct that holds nothing but defaults is not sent, and comes back as None.
        if random.random() < 0.5 and (entry.struct is None or value != entry.struct()):
            values[entry.name] = value
    return cls(**values)


def random_value(entry: FieldLayout, version: int, flexible: bool, random: Random) -> Any:
    if entry.is_nullable and random.random() < 0.25:
        return None
    if entry.is_array:
        # Now and then an array whose length takes two bytes, if its elements are small.
        longest = 200 if entry.struct is None and random.random() < 0.05 else 3
        return [random_element(entry, version, flexible, random) for _ in range(random.randint(0, longest))]
    return random_element(entry, version, flexible, random)


def random_element(entry: FieldLayout, version: int, flexible: bool, random: Random) -> Any:
    if entry.struct is not None:
        return random_struct(entry.struct, version, flexible, random)
    kind = entry.kind
    assert kind is not None
    if kind is STRING:
        return "".join(random.choices(LETTERS, k=random.choice((0, 1, 5, 9, 130))))
    if kind is BYTES or kind is RECORDS:
        return random.randbytes(random.choice((0, 1, 61, 126, 127, 128, 300)))
    if kind is UUID:
        return random.choice((bytes(16), random.randbytes(16)))
    if kind is BOOL:
        return random.random() < 0.5
    if kind.code == "d":
        return random.choice((0.0, -1.5, 1e300))
    return random_integer(entry.name, kind, random)


def random_integer(name: str, kind: Kind, random: Random) -> int:
    if name.endswith("error_code"):
        return random.choice(ERROR_CODES)
    if "time" in name or name.endswith("_ms"):
        # The oracle turns these into dates and durations, which are positive and end before 64-bit milliseconds do.
        return random.choice((0, 1, random.randint(2, min(kind.highest, 1 << 40))))
    return random.choice((0, 1, kind.lowest, kind.highest, random.randint(kind.lowest, kind.highest)))
