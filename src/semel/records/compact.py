"""What compaction does to one batch: list the keys in it, then keep some of its records.

A thinned batch still covers the same offsets and sequences, because a restarted broker restores its producers from
batches. Records are copied as they are, with their old offset deltas.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.records import kernel
from semel.records.batch import (
    CODEC_MASK,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    open_records,
    read_header,
)
from semel.records.build import seal_batch


def record_keys(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[tuple[int, bytes | None, bool, int]]:
    """(offset, key, has a value, timestamp of the record itself) for each record; without a value it is a tombstone."""
    header = header or read_header(batch)
    data, start = open_records(batch, header, max_decompressed_bytes)
    return kernel.read_keys(
        data, start, header.record_count, header.last_offset_delta, header.base_offset, header.base_timestamp
    )


def filter_batch(
    batch: Buffer,
    keep: Sequence[bool] | bytes | bytearray,
    *,
    header: BatchHeader | None = None,
    delete_horizon_ms: int | None = None,
    keep_empty: bool = False,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytearray | None:
    """The batch with only the records marked in `keep`, one mark a record in order.

    `delete_horizon_ms` is noted in the batch (KIP-534) unless it bears one already: the first one counts. The horizon
    takes the place of the base timestamp, so every kept record's timestamp delta is written anew.
    When nothing is kept the result is None, or with `keep_empty` a bare header that keeps the producer's last sequence.
    """
    header = header or read_header(batch)
    marks = bytes(keep)
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if delete_horizon_ms is not None and not header.has_delete_horizon:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    data, start = open_records(batch, header, max_decompressed_bytes)
    records, used_bytes, kept, kept_max_timestamp = kernel.copy_records(
        data,
        start,
        header.record_count,
        header.last_offset_delta,
        marks,
        header.base_timestamp,
        base_timestamp,
        HEADER_BYTES,
    )
    del records[used_bytes:]
    max_timestamp = header.max_timestamp
    if kept == 0:
        if not keep_empty:
            return None
        attributes &= ~(CODEC_MASK | DELETE_HORIZON_BIT)
        base_timestamp = NO_TIMESTAMP
    elif not header.is_log_append_time:
        max_timestamp = kept_max_timestamp
    return seal_batch(
        records,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=kept,
    )
