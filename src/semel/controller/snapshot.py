"""Snapshots of the metadata image, in Kafka's form: `<end offset>-<epoch>.checkpoint` beside the metadata log.

A snapshot is a file of record batches: a header control record, the image's records, a footer control record. One
without its footer was not finished and is not used.
"""

from struct import Struct

from semel.controller.image import MetadataImage
from semel.controller.levels import versioned
from semel.host.api import Disk
from semel.log.types import Epoch, Offset
from semel.quorum.snapshot_files import snapshot_ids
from semel.records.batch import check_crc, whole_batches
from semel.records.build import build_batch
from semel.records.errors import RecordError
from semel.records.read import record_values
from semel.wire.errors import WireError
from semel.wire.spec.metadata_records import MetadataRecord, decode_metadata_record, encode_metadata_record

_BATCH_RECORDS = 1000
_CONTROL_KEY = Struct(">hh")
_HEADER_TYPE, _FOOTER_TYPE = 3, 4
_HEADER = Struct(">hqB")
_FOOTER = Struct(">hB")


def encode_snapshot(image: MetadataImage, epoch: Epoch, now_ms: int) -> bytes:
    parts = [_control(_HEADER_TYPE, _HEADER.pack(0, now_ms, 0), 0, epoch, now_ms)]
    values = [encode_metadata_record(*one) for one in versioned(image.records(), image.metadata_version)]
    for first in range(0, len(values), _BATCH_RECORDS):
        some: list[bytes | None] = [*values[first : first + _BATCH_RECORDS]]
        parts.append(build_batch(some, base_timestamp_ms=now_ms, base_offset=first + 1, leader_epoch=epoch))
    parts.append(_control(_FOOTER_TYPE, _FOOTER.pack(0, 0), len(values) + 1, epoch, now_ms))
    return b"".join(parts)


def _control(kind: int, value: bytes, offset: Offset, epoch: Epoch, now_ms: int) -> bytearray:
    return build_batch(
        [value],
        keys=[_CONTROL_KEY.pack(0, kind)],
        base_timestamp_ms=now_ms,
        base_offset=offset,
        leader_epoch=epoch,
        control=True,
    )


def newest_snapshot(disk: Disk, directory: str) -> tuple[Offset, list[MetadataRecord]] | None:
    """The records of the newest whole snapshot, and the offset at which the log goes on from it."""
    for snapshot in reversed(snapshot_ids(disk, directory)):
        records = decode_snapshot(disk.read_file(f"{directory}/{snapshot.name}"))
        if records is not None:
            return snapshot.end_offset, records
    return None


def decode_snapshot(data: bytes) -> list[MetadataRecord] | None:
    """The records; None when the file is not what was written."""
    records: list[MetadataRecord] = []
    controls = 0
    end = 0
    try:
        for position, header in whole_batches(data):
            if not check_crc(data, position, header):
                return None
            end = position + header.size_bytes
            if header.is_control:
                controls += 1
                continue
            for value in record_values(memoryview(data)[position:end], header):
                if value is not None:
                    records.append(decode_metadata_record(value))
    except (RecordError, WireError):
        return None
    return records if controls == 2 and end == len(data) else None
