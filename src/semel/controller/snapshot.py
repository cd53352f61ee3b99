"""Snapshots of the metadata image, in Kafka's form: `<end offset>-<epoch>.checkpoint` beside the metadata log.

A snapshot is a file of record batches: a header control record, the image's records, a footer control record. One
without its footer was not finished and is not used.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct

from semel.controller.image import MetadataImage
from semel.controller.levels import versioned
from semel.log.types import Epoch, Offset
from semel.records.batch import check_crc, whole_batches
from semel.records.build import build_batch
from semel.records.errors import RecordError
from semel.records.read import record_values
from semel.wire.spec.metadata_records import MetadataRecord, decode_metadata_record, encode_metadata_record

_BATCH_RECORDS = 1000
_CONTROLS = 2  # batches of a whole one: header and footer
_CONTROL_KEY = Struct(">hh")
_HEADER_TYPE, _FOOTER_TYPE = 3, 4
_HEADER = Struct(">hqB")
_FOOTER = Struct(">hB")


def encode_snapshot(image: MetadataImage, epoch: Epoch, now_ms: int) -> bytes:
    parts: list[bytes | bytearray] = []
    deque(encode_in_steps(parts, image, epoch, now_ms), maxlen=0)
    return b"".join(parts)


def encode_in_steps(parts: list[bytes | bytearray], image: MetadataImage, epoch: Epoch, now_ms: int) -> Iterator[None]:
    """Adds the parts of the file while it is walked through. The image must not change meanwhile."""
    parts.append(_control(_HEADER_TYPE, _HEADER.pack(0, now_ms, 0), 0, epoch, now_ms))
    values: list[bytes | None] = []
    end_offset = 1

    def add_batch() -> None:
        nonlocal end_offset
        parts.append(build_batch(values, base_timestamp_ms=now_ms, base_offset=end_offset, leader_epoch=epoch))
        end_offset += len(values)
        values.clear()

    for one in versioned(image.records(), image.metadata_version):
        values.append(encode_metadata_record(*one))
        if len(values) == _BATCH_RECORDS:
            add_batch()
        yield
    if values:
        add_batch()
    parts.append(_control(_FOOTER_TYPE, _FOOTER.pack(0, 0), end_offset, epoch, now_ms))


def _control(kind: int, value: bytes, offset: Offset, epoch: Epoch, now_ms: int) -> bytearray:
    return build_batch(
        [value],
        keys=[_CONTROL_KEY.pack(0, kind)],
        base_timestamp_ms=now_ms,
        base_offset=offset,
        leader_epoch=epoch,
        control=True,
    )


def decode_snapshot(data: bytes) -> Iterator[MetadataRecord]:
    """The records. Raises RecordError or WireError, at the latest at its end, when the file is not what was written:
    nothing of it counts then."""
    controls = 0
    end = 0
    for position, header in whole_batches(data):
        if not check_crc(data, position, header):
            raise RecordError(f"the batch at byte {position} is damaged")
        end = position + header.size_bytes
        if header.is_control:
            controls += 1
            continue
        for value in record_values(memoryview(data)[position:end], header):
            if value is not None:
                yield decode_metadata_record(value)
    if controls != _CONTROLS or end != len(data):
        raise RecordError("it has no end")
