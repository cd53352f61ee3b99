"""Whether a start holds all that was acknowledged before it, although the last stop was not clean.

Where every partition is flushed before anything of it is acknowledged (flush.messages=1), a broker that was killed or
has lost power still holds all that it ever told the leader, or a producer, to have. It says so at its next start by the
epoch of its last registration, which Kafka's brokers can tell after a clean stop only. Otherwise a cluster whose nodes
were all killed at once would have nobody left who may lead (KIP-966).

The epoch is kept in a file of its own, written before the broker serves. The file goes, durably, before a partition
that is flushed later than that is opened, and comes back with the next registration that finds none.

A copy of the directory has the file, too, and may be older than what its node has acknowledged since. So the file also
names the inode of `meta.properties`, of which every copy has another. Only a snapshot of a whole volume keeps inodes:
who restores one of these removes the file, as docs/cluster.md says.
"""

from __future__ import annotations

import json

from semel.broker.identity import FILE_NAME as IDENTITY_FILE
from semel.host.api import Disk

FILE_NAME = "flushed-broker-epoch"
_NO_EPOCH = -1


class FlushedEpoch:
    """The file in one data directory."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._path = f"{root}/{FILE_NAME}"
        self._identity_path = f"{root}/{IDENTITY_FILE}"
        self._is_void = False

    def read(self) -> int:
        """The epoch that the last start had, or -1 if it may have lost something since."""
        try:
            found = json.loads(self._disk.read_file(self._path))
            is_copy = int(found["inode"]) != self._disk.file_number(self._identity_path)
            return _NO_EPOCH if is_copy else int(found["brokerEpoch"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return _NO_EPOCH

    async def write(self, broker_epoch: int) -> None:
        """This start has registered, or has done so again. Nothing may have been written since in a partition that is
        flushed later."""
        if not self._is_void:
            inode = self._disk.file_number(self._identity_path)
            content = {"version": 0, "brokerEpoch": broker_epoch, "inode": inode}
            await self._disk.replace_file(self._path, json.dumps(content, separators=(",", ":")).encode())

    def void(self) -> None:
        """From now on a crash may lose what was acknowledged, or told to a leader. Durable when it returns."""
        if self._is_void:
            return
        self._is_void = True
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
            self._disk.sync_dir_now(self._root)
