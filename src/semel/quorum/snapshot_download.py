"""A snapshot on its way from the leader: pieces are written to a file of another name, which gets its own when all of
them are durable. A download that fails is begun anew: the leader may have a newer one by then."""

from __future__ import annotations

from semel.host.api import Buffer, Disk, File
from semel.quorum.snapshot_files import PART_SUFFIX, SnapshotId


class SnapshotDownload:
    """Make one for each attempt, and `close` or `complete` it."""

    def __init__(self, disk: Disk, directory: str, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.position = 0
        self._disk = disk
        self._directory = directory
        disk.make_dirs(directory)
        self._path = f"{directory}/{snapshot.name.removesuffix('.checkpoint')}{PART_SUFFIX}"
        if disk.exists(self._path):
            disk.remove(self._path)
        self._file: File | None = disk.open(self._path, create=True)

    def write(self, piece: Buffer) -> None:
        """The next bytes of the file."""
        if self._file is not None:
            self._file.write_at(self.position, piece)
            self.position += len(piece)

    async def complete(self) -> None:
        """All of it has come: from now on the snapshot is there."""
        file = self._file
        if file is None:
            return
        await file.flush()
        self._disk.rename(self._path, f"{self._directory}/{self.snapshot.name}")
        await self._disk.sync_dir(self._directory)
        self._file = None
        file.close()

    def close(self) -> None:
        """Gives up what has not been completed."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._disk.remove(self._path)
