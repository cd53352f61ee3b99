"""Producer snapshots and windows as they stand in their files, each with what is wrong with its form."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from semel.log.producers import ENTRY, OLDER, WINDOW_BATCHES, Batch, Entry
from semel.log.types import ProducerId

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_WINDOW_ROW = Struct(">qB")
_SNAPSHOT_VERSION = 1
_WINDOW_VERSION = 0
_MASK = (1 << 31) - 1


class SnapshotFile(NamedTuple):
    """`problem` is None when the file is whole: then the next start believes it."""

    entries: list[Entry]
    problem: str | None


class WindowFile(NamedTuple):
    """Of each producer the batches before its newest, newest first."""

    older: dict[ProducerId, list[Batch]]
    problem: str | None


def read_snapshot_file(data: bytes) -> SnapshotFile:
    problem = _wrong_with_head(data, _SNAPSHOT_VERSION)
    if problem is not None:
        return SnapshotFile([], problem)
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    body = data[_HEAD.size + _COUNT.size :]
    if len(body) != count * ENTRY.size:
        return SnapshotFile([], f"it says {count} producers, which are {count * ENTRY.size} bytes, not {len(body)}")
    return SnapshotFile([Entry(*fields) for fields in ENTRY.iter_unpack(body)], None)


def read_window_file(data: bytes) -> WindowFile:
    problem = _wrong_with_head(data, _WINDOW_VERSION)
    if problem is not None:
        return WindowFile({}, problem)
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    older: dict[ProducerId, list[Batch]] = {}
    position = _HEAD.size + _COUNT.size
    while position + _WINDOW_ROW.size <= len(data):
        producer_id, batches = _WINDOW_ROW.unpack_from(data, position)
        position += _WINDOW_ROW.size
        end = position + batches * OLDER.size
        if batches >= WINDOW_BATCHES or end > len(data):
            return WindowFile(older, f"{batches} batches of producer {producer_id} do not fit")
        rows = OLDER.iter_unpack(data[position:end])
        older[producer_id] = [Batch((s - delta) & _MASK, s, offset - delta, offset) for s, offset, delta in rows]
        position = end
    if len(older) != count or position != len(data):
        return WindowFile(older, f"it says {count} producers, {len(older)} are there")
    return WindowFile(older, None)


def _wrong_with_head(data: bytes, version: int) -> str | None:
    if len(data) < _HEAD.size + _COUNT.size:
        return f"{len(data)} bytes are too few"
    found, crc = _HEAD.unpack_from(data)
    if found != version:
        return f"version {found}, not {version}"
    return None if crc == crc32c(data[_HEAD.size :]) else "its CRC-32C does not match"
