"""Control batches: the markers that end a transaction in a partition. Consumers step over them, brokers obey them."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from semel.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, Buffer, read_header
from semel.records.build import build_one
from semel.records.errors import InvalidRecord
from semel.records.read import read_records

_KEY = struct.Struct(">hh")  # version, kind
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_MAX_DECOMPRESSED_BYTES = 64 * 1024  # nobody compresses a marker, and no marker is large


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


class ControlMarker(NamedTuple):
    kind: ControlType
    coordinator_epoch: int


def control_batch(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """One marker in a batch of its own, as Kafka writes it: transactional, without a sequence."""
    return build_one(
        _VALUE.pack(0, coordinator_epoch),
        key=_KEY.pack(0, kind),
        timestamp_ms=timestamp_ms,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def read_control(batch: Buffer, header: BatchHeader | None = None) -> ControlMarker | None:
    """The marker in a control batch; None when compaction has emptied it.

    Later versions may append fields, so bytes past those we know are no error.
    """
    header = header or read_header(batch)
    if not header.is_control:
        raise InvalidRecord("not a control batch")
    records = read_records(batch, header, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES)
    if not records:
        return None
    key, value = records[0].key, records[0].value
    if len(records) > 1 or key is None or len(key) < _KEY.size:
        raise InvalidRecord("a control batch holds one record whose key is a version and a type")
    version, kind = _KEY.unpack_from(key)
    if version < 0 or kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecord(f"control record of type {kind}, version {version}: not the end of a transaction")
    if value is None or len(value) < _VALUE.size:
        raise InvalidRecord("a transaction marker without a coordinator epoch")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"transaction marker of version {version}")
    return ControlMarker(ControlType(kind), coordinator_epoch)
