"""Makes record batches: what a producer sends, a coordinator appends, or a test needs."""

from __future__ import annotations

from collections.abc import Sequence

from semel.records import kernel
from semel.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_FIELD_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    set_crc,
)
from semel.records.compression import compress

Headers = Sequence[tuple[str, bytes | None]]


def build_batch(
    values: list[bytes | None],
    *,
    base_timestamp_ms: int,
    keys: list[bytes | None] | None = None,
    headers: list[Headers] | None = None,
    timestamps_ms: list[int] | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
) -> bytearray:
    """A batch of one record for each value, with offsets from `base_offset` on.

    The other lists, where given, run alongside `values`. Without `timestamps_ms` every record has `base_timestamp_ms`;
    with `log_append_time` that is the time of the append, whatever the records say.
    """
    if not values:
        raise ValueError("a batch holds at least one record")
    for name, column in (("keys", keys), ("headers", headers), ("timestamps_ms", timestamps_ms)):
        if column is not None and len(column) != len(values):
            raise ValueError(f"{len(column)} {name} for {len(values)} values")
    blocks = None if headers is None else [kernel.encode_headers(of_record) for of_record in headers]
    records, max_timestamp = kernel.encode_records(values, keys, blocks, timestamps_ms, base_timestamp_ms, HEADER_BYTES)
    attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if log_append_time else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    return seal_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        level=level,
        last_offset_delta=len(values) - 1,
        base_timestamp=base_timestamp_ms,
        max_timestamp=base_timestamp_ms if log_append_time else max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(values),
    )


def build_one(
    value: bytes | None,
    *,
    key: bytes | None,
    timestamp_ms: int,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """As `build_batch`, of one record without headers and compression: for what the node itself writes all the time."""
    batch = kernel.encode_one(
        value, key, timestamp_ms, attributes, producer_id, producer_epoch, base_offset, leader_epoch
    )
    set_crc(batch)
    return batch


def seal_batch(
    records: bytearray,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
    level: int | None = None,
) -> bytearray:
    """Turns encoded records, with room for a header before them, into a batch, compressed as `attributes` say."""
    codec = attributes & CODEC_MASK
    batch = records
    if codec != 0:
        batch = bytearray(HEADER_BYTES)
        batch += compress(codec, memoryview(records)[HEADER_BYTES:], level)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_FIELD_END,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    set_crc(batch)
    return batch
