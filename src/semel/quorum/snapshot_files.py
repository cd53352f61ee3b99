"""Snapshots of the metadata as files, in Kafka's form: `<end offset>-<epoch>.checkpoint` beside the metadata log.

The end offset is that of the first record which the snapshot does not stand for, the epoch that of the record before.
While one is written or received its name ends otherwise, so a name that ends so is that of a whole snapshot, unless the
disk has damaged it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.host.api import Disk
from semel.log.types import Epoch, Offset

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")


class SnapshotId(NamedTuple):
    """Ordered as the log is: by the offset first."""

    end_offset: Offset
    epoch: Epoch

    @property
    def name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


NO_SNAPSHOT = SnapshotId(0, 0)
"""Kafka's file of that name holds what a cluster begins with. It is no snapshot of the log, and never sent."""


def snapshot_ids(disk: Disk, directory: str) -> list[SnapshotId]:
    """Those that are there, oldest first."""
    if not disk.exists(directory):
        return []
    found = [match for name in disk.list_dir(directory) if (match := _NAME.match(name))]
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found)


def remove_unfinished(disk: Disk, directory: str) -> None:
    """Files of snapshots that a node began to write or to receive before its last end."""
    for name in disk.list_dir(directory) if disk.exists(directory) else []:
        if name.endswith(PART_SUFFIX):
            disk.remove(f"{directory}/{name}")
