"""Gives up what is missing of a log, because somebody has decided so: what is left becomes a log that can be served.

Batches that cannot be read are taken out of their segments, and kept aside; offsets that are missing stay missing, as
after compaction. Everything that is derived from the batches is made anew by the load that follows.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.host.api import Disk
from semel.log.compaction_swap import finish_swaps
from semel.log.epochs import FILE_NAME as EPOCHS_FILE
from semel.log.inspection.scan import Scanned, scan
from semel.log.inventory import FILE_NAME as INVENTORY_FILE
from semel.log.inventory import read_inventory
from semel.log.kept_aside import DAMAGED, keep_aside
from semel.log.segment import ABORTED_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from semel.log.snapshots import read_snapshot, remove_snapshot, snapshot_offsets
from semel.log.types import Offset, ProducerId

_MENDED_SUFFIX = ".mended"
_PIECE_BYTES = 1 << 20


class GivenUp(NamedTuple):
    """What is no longer in the log, in words; where it begins and ends now; and the producers that were known."""

    losses: list[str]
    start_offset: Offset
    end_offset: Offset
    rows: dict[ProducerId, bytes]


def give_up_what_is_missing(disk: Disk, directory: str) -> GivenUp:
    """Changes the files so that a scan finds nothing wrong. A crash on the way leaves what can be given up again."""
    finish_swaps(disk, directory)
    names = disk.list_dir(directory)
    bases = sorted(int(name[: -len(LOG_SUFFIX)]) for name in names if name.endswith(LOG_SUFFIX))
    losses = _missing_segments(disk, directory, bases)
    rows = _newest_rows(disk, directory)
    start = expected = bases[0] if bases else 0
    for number, base in enumerate(bases):
        if base > expected:
            losses.append(f"offsets {expected} to {base - 1}")
        limit = bases[number + 1] if number + 1 < len(bases) else None
        expected = max(expected, base, _mend(disk, f"{directory}/{base:020d}{LOG_SUFFIX}", base, limit, losses))
    for name in names:
        if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_INDEX_SUFFIX)) or name in (
            INVENTORY_FILE,
            EPOCHS_FILE,
        ):
            disk.remove(f"{directory}/{name}")
    for offset in snapshot_offsets(names):
        remove_snapshot(disk, directory, offset)
    disk.sync_dir_now(directory)
    return GivenUp(losses, start, expected, rows)


def _missing_segments(disk: Disk, directory: str, bases: list[Offset]) -> list[str]:
    inventory, _ = read_inventory(disk, directory)
    if inventory is None or not bases:
        return []
    first = min(inventory.segments, default=bases[0])
    return [f"offsets {first} to {bases[0] - 1}"] if first < bases[0] else []


def _newest_rows(disk: Disk, directory: str) -> dict[ProducerId, bytes]:
    for offset in reversed(snapshot_offsets(disk.list_dir(directory))):
        rows = read_snapshot(disk, directory, offset)
        if rows is not None:
            return rows
    return {}


def _mend(disk: Disk, path: str, base: Offset, limit: Offset | None, losses: list[str]) -> Offset:
    """Takes what cannot be read out of a segment. Returns where the segment ends."""
    file = disk.open(path)
    try:
        expected, good, bad = base, list[Scanned](), list[Scanned]()
        for scanned in scan(file, file.size()):
            header = scanned.header
            fits = header is not None and scanned.problem is None and header.base_offset >= expected
            if fits and header is not None and (limit is None or header.last_offset < limit):
                good.append(scanned)
                expected = header.next_offset
            else:
                bad.append(scanned)
        if not bad:
            return expected
        for one in bad:
            kept = keep_aside(disk, file, one.position, one.end, DAMAGED)
            what = f"{one.end - one.position} bytes at byte {one.position} of {path.rpartition('/')[2]}"
            losses.append(what + (", all zero" if kept is None else f", kept as {kept.rpartition('/')[2]}"))
        disk.sync_dir_now(path.rpartition("/")[0])
        mended_path = path + _MENDED_SUFFIX
        if disk.exists(mended_path):
            disk.remove(mended_path)
        mended = disk.open(mended_path, create=True)
        at = 0
        for one in good:
            for position in range(one.position, one.end, _PIECE_BYTES):
                piece = file.read_at(position, min(_PIECE_BYTES, one.end - position))
                mended.write_at(at, piece)
                at += len(piece)
        mended.flush_now()
        mended.close()
    finally:
        file.close()
    disk.rename(mended_path, path)
    return expected
