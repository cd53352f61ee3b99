from __future__ import annotations

import struct

import pytest

from semel.records.batch import check_crc, read_header, walk
from semel.records.build import build_batch
from semel.records.compact import filter_batch
from semel.records.compression import Codec
from semel.records.control import ControlMarker, ControlType, control_batch, read_control
from semel.records.errors import InvalidRecord, RecordError
from semel.records.read import read_records


def marker(kind: ControlType = ControlType.COMMIT) -> bytearray:
    return control_batch(kind, producer_id=9, producer_epoch=2, coordinator_epoch=31, timestamp_ms=1000)


def control(key: bytes | None, value: bytes | None, **options: int) -> bytearray:
    return build_batch([value], keys=[key], base_timestamp_ms=1, control=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", list(ControlType))
def test_a_marker_comes_back(kind: ControlType) -> None:
    batch = marker(kind)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    assert check_crc(batch, 0, header)
    assert read_control(batch) == ControlMarker(kind, 31)
    assert walk(batch, header) == (1000, 1000, 0)


def test_a_marker_has_the_bytes_that_kafka_writes() -> None:
    (record,) = read_records(marker(ControlType.COMMIT))
    assert record.key == bytes.fromhex("0000 0001")
    assert record.value == bytes.fromhex("0000 0000001f")
    (record,) = read_records(marker(ControlType.ABORT))
    assert record.key == bytes.fromhex("0000 0000")


def test_a_marker_of_a_later_version_is_read() -> None:
    batch = control(struct.pack(">hh", 1, 0) + b"more", struct.pack(">hi", 1, 5) + b"more")
    assert read_control(batch) == ControlMarker(ControlType.ABORT, 5)


def test_an_emptied_control_batch_has_no_marker() -> None:
    emptied = filter_batch(marker(), b"\x00", keep_empty=True)
    assert emptied is not None
    assert read_control(emptied) is None


def test_a_data_batch_is_not_a_marker() -> None:
    with pytest.raises(InvalidRecord):
        read_control(build_batch([b"v"], base_timestamp_ms=1))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00" * 6),
        (b"", b"\x00" * 6),
        (b"\x00\x00\x00", b"\x00" * 6),
        (b"\x00\x00\x00\x00", None),
        (b"\x00\x00\x00\x00", b"\x00" * 5),
        (b"\x00\x00\x00\x02", b"\x00" * 6),
        (b"\xff\xff\x00\x00", b"\x00" * 6),
        (b"\x00\x00\x00\x00", b"\xff" * 6),
    ],
)
def test_a_malformed_marker_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_control(control(key, value))


def test_two_markers_in_a_batch_are_refused() -> None:
    key, value = struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 5)
    with pytest.raises(InvalidRecord):
        read_control(build_batch([value] * 2, keys=[key] * 2, base_timestamp_ms=1, control=True))


def test_a_control_batch_cannot_be_a_bomb() -> None:
    with pytest.raises(RecordError):
        read_control(control(b"\x00" * 4, bytes(2**20), codec=Codec.ZSTD))
