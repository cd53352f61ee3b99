"""What recovery takes out of a log stays beside it, under a name that says what it is.

`<segment>.log.cut-at-<byte>` is the torn end of a segment, or (at byte 0) a segment behind a torn one.
`<segment>.log.damaged-at-<byte>` is a batch that cannot be read, and valid ones follow it. No node reads either again.
Both go when retention removes what stood around them.
"""

from __future__ import annotations

import re

from semel.host.api import Disk, File
from semel.log.types import Offset

CUT = "cut-at"
DAMAGED = "damaged-at"
_NAME = re.compile(rf"(\d{{20}})\.log\.(?:{CUT}|{DAMAGED})-\d+(?:-\d+)?\Z")
_PIECE_BYTES = 1 << 20


def is_kept_aside(name: str) -> bool:
    return _NAME.match(name) is not None


def keep_aside(disk: Disk, file: File, position: int, end: int, kind: str) -> str | None:
    """Copies a stretch of a segment into a durable file of its own; None if there is nothing but zeros in it. The
    caller makes the name durable before it takes the bytes away."""
    pieces = range(position, end, _PIECE_BYTES)
    if not any(file.read_at(at, min(_PIECE_BYTES, end - at)).strip(b"\0") for at in pieces):
        return None
    number = 1
    while True:
        path = _path(file.path, kind, position, number)
        if not disk.exists(path):
            break
        if _holds(disk, path, file, position, end):
            return path  # of a start that came no further
        number += 1
    copy = disk.open(path, create=True)
    try:
        for at in pieces:
            copy.write_at(at - position, file.read_at(at, min(_PIECE_BYTES, end - at)))
        copy.flush_now()
    except BaseException:
        disk.remove(path)
        raise
    finally:
        copy.close()
    return path


def keep_file_aside(disk: Disk, path: str, kind: str) -> str:
    """Gives a whole segment file another name. The caller makes that durable."""
    number = 1
    while disk.exists(_path(path, kind, 0, number)):
        number += 1
    aside = _path(path, kind, 0, number)
    disk.rename(path, aside)
    return aside


def remove_kept_aside(disk: Disk, directory: str, before: Offset) -> None:
    """Of segments that retention has removed."""
    for name in disk.list_dir(directory):
        found = _NAME.match(name)
        if found is not None and int(found[1]) < before:
            disk.remove(f"{directory}/{name}")


def _path(path: str, kind: str, position: int, number: int) -> str:
    return f"{path}.{kind}-{position}" + (f"-{number}" if number > 1 else "")


def _holds(disk: Disk, path: str, file: File, position: int, end: int) -> bool:
    kept = disk.open(path)
    try:
        return kept.size() == end - position and all(
            kept.read_at(at - position, min(_PIECE_BYTES, end - at)) == file.read_at(at, min(_PIECE_BYTES, end - at))
            for at in range(position, end, _PIECE_BYTES)
        )
    finally:
        kept.close()
