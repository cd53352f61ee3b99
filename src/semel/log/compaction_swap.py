"""Puts compacted segments in the place of the old ones, so that a crash at any moment leaves the old log or the new.

New segments are made whole and durable in a sub-directory. Then a manifest is written at once: from that moment the
new ones count. Moving the files is repeatable, so a start that finds a manifest simply moves them again; a start that
finds the sub-directory without a manifest throws it away.
"""

import json
from collections.abc import Callable, Sequence

from semel.host.api import Disk
from semel.log.segment import ABORTED_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from semel.log.types import Offset

WORK_DIRECTORY = "compacting"
_MANIFEST = "compaction-swap.json"
_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_INDEX_SUFFIX)


def clear_work(disk: Disk, directory: str) -> None:
    """Throws away what an earlier compaction left behind."""
    work = f"{directory}/{WORK_DIRECTORY}"
    if disk.exists(work):
        disk.remove_tree(work)


async def swap(disk: Disk, directory: str, old_bases: Sequence[Offset], reopen: Callable[[], None]) -> None:
    """Replaces the segments of `old_bases` by those in the sub-directory, which are durable, names included.

    `reopen` is called in the same step as the files move: nobody may look for the old ones by their names after it."""
    new_files = disk.list_dir(f"{directory}/{WORK_DIRECTORY}")
    manifest = json.dumps({"old_bases": list(old_bases), "new_files": new_files}).encode()
    await disk.replace_file(f"{directory}/{_MANIFEST}", manifest)
    if not disk.exists(f"{directory}/{_MANIFEST}"):
        return  # the log was removed meanwhile, and a directory of that name is another's
    _move(disk, directory, old_bases, new_files)
    reopen()
    await disk.sync_dir(directory)
    disk.remove(f"{directory}/{_MANIFEST}")
    # A manifest that came back after a power loss would move the half-made files of the next compaction.
    await disk.sync_dir(directory)
    clear_work(disk, directory)


def finish_swaps(disk: Disk, directory: str) -> None:
    """At start: ends a swap that was decided, undoes one that was not."""
    path = f"{directory}/{_MANIFEST}"
    if disk.exists(path):
        manifest = json.loads(disk.read_file(path))
        _move(disk, directory, manifest["old_bases"], manifest["new_files"])
        disk.sync_dir_now(directory)
        disk.remove(path)
        disk.sync_dir_now(directory)
    clear_work(disk, directory)


def _move(disk: Disk, directory: str, old_bases: Sequence[Offset], new_files: Sequence[str]) -> None:
    for name in new_files:
        made = f"{directory}/{WORK_DIRECTORY}/{name}"
        if disk.exists(made):
            disk.rename(made, f"{directory}/{name}")
    for base in old_bases:
        for suffix in _SUFFIXES:
            name = f"{base:020d}{suffix}"
            if name not in new_files and disk.exists(f"{directory}/{name}"):
                disk.remove(f"{directory}/{name}")
