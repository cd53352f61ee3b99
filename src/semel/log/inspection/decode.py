"""Reads the records of the topics in which a cluster keeps its own state, as the coordinators read them."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packed
from typing import Any

from semel.log.inspection.metadata import METADATA_TOPIC, id_text
from semel.records.read import Record
from semel.wire.codec import decode
from semel.wire.errors import WireError
from semel.wire.schema import Message, Struct
from semel.wire.spec.group_records import read_group_record
from semel.wire.spec.metadata_records import decode_metadata_record
from semel.wire.spec.transaction_log import TransactionLogKey, TransactionLogValue

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
_VERSION = Packed(">h")
_UUID_BYTES = 16

Decoded = tuple[Message | None, Message | None]
"""Key and value; a value of None takes the key away."""


class Undecodable(Exception):
    """The record is not of a kind that is known here."""


def decoder_for(topic: str) -> Callable[[Record], Decoded] | None:
    """How to read the records of a topic; None for a topic whose records are the program's own."""
    return {
        OFFSETS_TOPIC: _told(_group_record),
        TRANSACTIONS_TOPIC: _told(_transaction_record),
        METADATA_TOPIC: _told(_metadata_record),
    }.get(topic)


def _told(read: Callable[[Record], Decoded]) -> Callable[[Record], Decoded]:
    def reads(record: Record) -> Decoded:
        try:
            return read(record)
        except WireError as error:
            raise Undecodable(str(error)) from error

    return reads


def _group_record(record: Record) -> Decoded:
    found = read_group_record(record.key or b"", record.value)
    if found is None:
        raise Undecodable("a record of a kind that is not known")
    return found


def _transaction_record(record: Record) -> Decoded:
    if record.key is None or len(record.key) < _VERSION.size:
        raise Undecodable("a record without a key")
    (version,) = _VERSION.unpack_from(record.key)
    key = decode(TransactionLogKey, version, memoryview(record.key)[_VERSION.size :])
    if record.value is None:
        return key, None
    if len(record.value) < _VERSION.size:
        raise Undecodable("a value that ends before its version")
    (version,) = _VERSION.unpack_from(record.value)
    return key, decode(TransactionLogValue, version, memoryview(record.value)[_VERSION.size :])


def _metadata_record(record: Record) -> Decoded:
    if record.value is None:
        raise Undecodable("a record without a value")
    return None, decode_metadata_record(record.value)


def fields_of(struct: Struct, *, with_defaults: bool) -> dict[str, Any]:
    """The fields by name, ids as Kafka writes them; without defaults, only those that say something, as zeros do."""
    shown: dict[str, Any] = {}
    for name, described in struct._fields.items():
        value = getattr(struct, name)
        if with_defaults or value != described.default or _is_zero(value):
            shown[name] = _plain(name, value, with_defaults)
    return shown


def _is_zero(value: object) -> bool:
    """Also false, which is a value as any other."""
    return isinstance(value, int) and value == 0


def _plain(name: str, value: Any, with_defaults: bool) -> Any:
    if isinstance(value, Struct):
        return fields_of(value, with_defaults=with_defaults)
    if isinstance(value, list | tuple):
        return [_plain(name, one, with_defaults) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return id_text(data) if len(data) == _UUID_BYTES and "id" in name.split("_") else data.hex()
    return value
