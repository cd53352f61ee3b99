"""The record batch as a whole: its 61-byte header, its checksum, the check of its records, and the few fields that may
be changed in place. Base offset and leader epoch lie outside the checksum's range, so a broker sets them for free.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from semel.records import kernel
from semel.records.checksum import crc32c
from semel.records.compression import decompress
from semel.records.errors import CorruptBatch, InvalidRecord
from semel.records.sequences import NO_SEQUENCE, next_sequence

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
MAGIC = 2
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
DEFAULT_MAX_DECOMPRESSED_BYTES = 256 * 2**20

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")

LENGTH_FIELD_END = 12  # batch_length counts what comes after itself
_LEADER_EPOCH_POSITION = 12
_CRC_POSITION = 17
CRC_START = 21  # the checksum covers everything from the attributes on
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER_POSITION = 43


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_FIELD_END

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether base_timestamp tells when compaction may drop the tombstones and markers in here (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def is_idempotent(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.last_offset_delta)


class Walk(NamedTuple):
    """What is known of a batch after every record in it was checked. Both timestamps are -1 when it has no records."""

    min_timestamp: int
    max_timestamp: int
    null_keys: int


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. The batch itself need not be whole."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptBatch(f"{len(buffer) - position} bytes are too few for a batch header")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic}: only record batches of magic 2 are read")
    if header.batch_length < HEADER_BYTES - LENGTH_FIELD_END:
        raise CorruptBatch(f"batch length {header.batch_length} is less than a header")
    if header.record_count < 0:
        raise CorruptBatch(f"record count {header.record_count}")
    if header.last_offset_delta < 0:
        raise CorruptBatch(f"last offset delta {header.last_offset_delta}")
    return header


def whole_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch that is whole, up to the first that is not: a fetch may cut the last one."""
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if len(buffer) - position < header.size_bytes:
            return
        yield position, header
        position += header.size_bytes


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the bytes of the batch at `position` are those its checksum was made from. A cut batch is not."""
    end = position + header.size_bytes
    return end <= len(buffer) and crc32c(memoryview(buffer)[position + CRC_START : end]) == header.crc


def open_records(batch: Buffer, header: BatchHeader, max_decompressed_bytes: int) -> tuple[Buffer, int]:
    """The encoded records of exactly this batch, decompressed if need be: a buffer and where in it they start."""
    if len(batch) != header.size_bytes:
        raise CorruptBatch(f"a batch of {header.size_bytes} bytes in a buffer of {len(batch)}")
    if header.codec == 0:
        return batch, HEADER_BYTES
    return decompress(header.codec, memoryview(batch)[HEADER_BYTES:], max_decompressed_bytes), 0


def walk(
    batch: Buffer,
    header: BatchHeader,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    compacted: bool = False,
) -> Walk:
    """Checks every record of a batch, opening it if it is compressed.

    A batch from a producer has at least one record and an unbroken row of offset deltas. With `compacted` it may be
    what compaction has left over: offset deltas only grow, and there may be no record at all.
    """
    if header.record_count == 0 and not compacted:
        raise InvalidRecord("a batch without records")
    data, start = open_records(batch, header, max_decompressed_bytes)
    return Walk._make(
        kernel.walk_records(
            data, start, header.record_count, header.last_offset_delta, compacted, header.base_timestamp
        )
    )


def set_base_offset(batch: bytearray | memoryview, offset: int) -> None:
    _INT64.pack_into(batch, 0, offset)


def set_leader_epoch(batch: bytearray | memoryview, epoch: int) -> None:
    _INT32.pack_into(batch, _LEADER_EPOCH_POSITION, epoch)


def set_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int, log_append_time: bool) -> None:
    """With `log_append_time` every record of the batch now counts as written at `timestamp_ms`."""
    _set_attribute(batch, LOG_APPEND_TIME_BIT, log_append_time)
    _INT64.pack_into(batch, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    set_crc(batch)


def set_producer(
    batch: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    transactional: bool | None = None,
) -> None:
    """Makes the batch that producer's. `transactional` stays as it is unless given."""
    if transactional is not None:
        _set_attribute(batch, TRANSACTIONAL_BIT, transactional)
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    set_crc(batch)


def set_crc(batch: bytearray | memoryview) -> None:
    """Makes the checksum true again after a change; `batch` is the whole batch and nothing more."""
    _UINT32.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))


def _set_attribute(batch: bytearray | memoryview, bit: int, on: bool) -> None:
    (attributes,) = _INT16.unpack_from(batch, _ATTRIBUTES_POSITION)
    _INT16.pack_into(batch, _ATTRIBUTES_POSITION, attributes | bit if on else attributes & ~bit)
