"""Producer snapshots on disk: `<offset>.snapshot` in Kafka's own format, and `<offset>.window` beside it.

Kafka's format holds one batch per producer. The window file holds the other four, so that a duplicate of any of the
last five batches is known as one after a restart too. A snapshot at offset N says what the batches below N made.
"""

from struct import Struct

from crc32c import crc32c

from semel.host.api import Disk
from semel.log.producers import ENTRY, OLDER, WINDOW_BATCHES
from semel.log.types import Offset, ProducerId

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_WINDOW_ROW = Struct(">qB")
_SNAPSHOT_VERSION = 1
_WINDOW_VERSION = 0
SNAPSHOT_SUFFIX = ".snapshot"
WINDOW_SUFFIX = ".window"


def snapshot_path(directory: str, offset: Offset) -> str:
    return f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"


def window_path(directory: str, offset: Offset) -> str:
    return f"{directory}/{offset:020d}{WINDOW_SUFFIX}"


def encode_snapshot(rows: dict[ProducerId, bytes]) -> bytes:
    body = _COUNT.pack(len(rows)) + b"".join(row[: ENTRY.size] for row in rows.values())
    return _HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body


def encode_window(rows: dict[ProducerId, bytes]) -> bytes:
    parts = [_COUNT.pack(len(rows))]
    for producer_id, row in rows.items():
        older = row[ENTRY.size :]
        parts.append(_WINDOW_ROW.pack(producer_id, len(older) // OLDER.size) + older)
    body = b"".join(parts)
    return _HEAD.pack(_WINDOW_VERSION, crc32c(body)) + body


def snapshot_files(directory: str, offset: Offset, rows: dict[ProducerId, bytes]) -> list[tuple[str, bytes]]:
    """What to write where, in order. The window goes first: a snapshot that is there has its window beside it."""
    return [
        (window_path(directory, offset), encode_window(rows)),
        (snapshot_path(directory, offset), encode_snapshot(rows)),
    ]


def write_snapshot_now(disk: Disk, directory: str, offset: Offset, rows: dict[ProducerId, bytes]) -> None:
    for path, data in snapshot_files(directory, offset, rows):
        disk.replace_file_now(path, data)


def snapshot_offsets(names: list[str]) -> list[Offset]:
    """The offsets at which a directory holds snapshots, oldest first."""
    return sorted(int(name[: -len(SNAPSHOT_SUFFIX)]) for name in names if name.endswith(SNAPSHOT_SUFFIX))


def remove_snapshot(disk: Disk, directory: str, offset: Offset) -> None:
    for path in (snapshot_path(directory, offset), window_path(directory, offset)):
        if disk.exists(path):
            disk.remove(path)


def read_snapshot(disk: Disk, directory: str, offset: Offset) -> dict[ProducerId, bytes] | None:
    """The rows of a snapshot; None when it is missing or damaged, and the log has to be replayed from further back."""
    body = _read_checked(disk, snapshot_path(directory, offset), _SNAPSHOT_VERSION)
    if body is None or (len(body) - _COUNT.size) % ENTRY.size:
        return None
    rows: dict[ProducerId, bytes] = {}
    for position in range(_COUNT.size, len(body), ENTRY.size):
        row = body[position : position + ENTRY.size]
        rows[int.from_bytes(row[:8], "big", signed=True)] = row
    older = _read_window(disk, window_path(directory, offset))
    if older is not None:
        for producer_id, batches in older.items():
            if producer_id in rows:
                rows[producer_id] += batches
    return rows


def _read_window(disk: Disk, path: str) -> dict[ProducerId, bytes] | None:
    body = _read_checked(disk, path, _WINDOW_VERSION)
    if body is None:
        return None
    older: dict[ProducerId, bytes] = {}
    position = _COUNT.size
    while position + _WINDOW_ROW.size <= len(body):
        producer_id, batches = _WINDOW_ROW.unpack_from(body, position)
        position += _WINDOW_ROW.size
        size = min(batches, WINDOW_BATCHES - 1) * OLDER.size
        older[producer_id] = body[position : position + size]
        position += size
    return older


def _read_checked(disk: Disk, path: str, version: int) -> bytes | None:
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    if len(data) < _HEAD.size + _COUNT.size:
        return None
    found_version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    return body if found_version == version and crc == crc32c(body) else None
