"""Keeps the inventory of a log in step with its files: they are listed when they are settled, and taken out of the list
before they are removed or replaced.

Call these with the log's upkeep to yourself. A log that is closed meanwhile writes nothing more: the directory of that
name may be another log's by then.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from crc32c import crc32c

from semel.log.indexes import IndexFile
from semel.log.inventory import FILE_NAME, FileState, SegmentFiles, state_of
from semel.log.segment import Segment
from semel.log.snapshots import SNAPSHOT_SUFFIX, WINDOW_SUFFIX
from semel.log.types import Offset

if TYPE_CHECKING:
    from semel.log.log import Log

_READ_AT_A_STOP_BYTES = 64 << 20


def is_complete(log: Log) -> bool:
    """Whether every settled segment is listed."""
    return all(segment.base_offset in log.inventory.segments for segment in _settled(log))


def _settled(log: Log) -> list[Segment]:
    return [segment for segment in log.segments[:-1] if log.is_settled(segment)]


async def list_settled(log: Log) -> None:
    """Lists what is settled and not listed yet. The epochs of its batches are written first: nobody looks for them in a
    segment that is listed."""
    await log.write_epochs()
    for segment in _settled(log):
        if segment.base_offset not in log.inventory.segments:
            if segment.unchecked is not None:
                await segment.unchecked.check()
            index = await measured(segment.offset_index)
            time_index = await measured(segment.time_index)
            aborted = await measured(segment.aborted_index)
            if log.is_closed or segment.is_removed:
                return
            _list(log, segment, index, time_index, aborted)
    await write(log)


async def unlist(log: Log, bases: Collection[Offset], end_offset: Offset | None = None) -> None:
    """Takes segments out of the list, before they are removed, replaced or cut. `end_offset`: where the log will end,
    if it is to be cut; nothing is left of it if all are taken out."""
    inventory = log.inventory
    for base in bases:
        inventory.segments.pop(base, None)
    if end_offset is not None:
        if len(bases) == len(log.segments):
            end_offset = 0
        inventory.end_offset = min(inventory.end_offset, end_offset)
        inventory.epochs = [entry for entry in inventory.epochs if entry[1] < end_offset]
        beyond = [name for name in inventory.files if name[:20].isdigit() and int(name[:20]) > end_offset]
        for name in beyond:
            del inventory.files[name]
    await write(log)


def list_everything_now(log: Log) -> None:
    """At a clean stop: the active segment too. Of what has not been listed in this run some may stay out of it: to read
    all of that could take long."""
    inventory = log.inventory
    active = log.segments[-1]
    unread = _READ_AT_A_STOP_BYTES
    for segment in log.segments:
        is_known = segment.base_offset in inventory.segments
        if not is_known:
            unread -= segment.offset_index.size_bytes + segment.time_index.size_bytes
        if segment is active or not log.is_settled(segment) or (not is_known and unread > 0):
            if segment.unchecked is not None:
                segment.unchecked.check_now()
            states = map(measured_now, (segment.offset_index, segment.time_index, segment.aborted_index))
            _list(log, segment, *states)
    inventory.active = active.base_offset
    inventory.end_offset = log.end_offset
    _list_snapshots(log)
    log.disk.replace_file_now(f"{log.directory}/{FILE_NAME}", inventory.encode())


async def write(log: Log) -> None:
    if log.is_closed or not log.disk.exists(log.directory):
        return
    _list_snapshots(log)
    await log.disk.replace_file(f"{log.directory}/{FILE_NAME}", log.inventory.encode())


def _list(
    log: Log, segment: Segment, index: FileState | None, time_index: FileState | None, aborted: FileState | None
) -> None:
    bases = [one.base_offset for one in log.segments if one.base_offset > segment.base_offset]
    # What may be missing at its end is known to be: compaction has taken it, or it was given up.
    next_offset = bases[0] if bases else segment.next_offset
    entry = SegmentFiles(next_offset, segment.size_bytes, index, time_index, aborted)
    log.inventory.segments[segment.base_offset] = entry


def _list_snapshots(log: Log) -> None:
    """Those that are to stay; what this run has written of them is known already."""
    inventory, kept = log.inventory, set(log.kept_snapshots()) if log.segments else set()
    known = inventory.files
    inventory.files = {}
    for name in log.disk.list_dir(log.directory):
        if name.endswith((SNAPSHOT_SUFFIX, WINDOW_SUFFIX)) and name[:20].isdigit() and int(name[:20]) in kept:
            state = known.get(name)
            if state is None:
                state = state_of(log.disk.read_file(f"{log.directory}/{name}"))
            inventory.files[name] = state
    inventory.identity = log.identity or inventory.identity


async def measured(index: IndexFile) -> FileState | None:
    """Reads the file in pieces, so that others have their turn in between."""
    import asyncio  # not for those who only look into files

    if not index.is_there:
        return None
    checksum = size_bytes = 0
    for piece in index.pieces():
        checksum, size_bytes = crc32c(piece, checksum), size_bytes + len(piece)
        await asyncio.sleep(0)
    return FileState(size_bytes, checksum)


def measured_now(index: IndexFile) -> FileState | None:
    if not index.is_there:
        return None
    checksum = size_bytes = 0
    for piece in index.pieces():
        checksum, size_bytes = crc32c(piece, checksum), size_bytes + len(piece)
    return FileState(size_bytes, checksum)
