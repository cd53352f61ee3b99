"""The same records under another codec: for topics that name their own `compression.type`."""

from __future__ import annotations

from semel.records.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, Buffer, open_records
from semel.records.build import seal_batch
from semel.records.compression import Codec


def recompress(
    batch: Buffer, header: BatchHeader, codec: Codec, *, level: int | None, max_decompressed_bytes: int
) -> bytearray:
    """The batch with everything as it was but its codec, length and checksum."""
    data, start = open_records(batch, header, max_decompressed_bytes)
    records = bytearray(HEADER_BYTES)
    records += memoryview(data)[start:]
    return seal_batch(
        records,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=(header.attributes & ~CODEC_MASK) | codec,
        level=level,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
