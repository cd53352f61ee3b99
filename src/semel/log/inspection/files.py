"""The files of a data directory, opened for reading only: what a node's own Disk offers would open them for writing.

`Files` is the part of a Disk that a reader needs, so everything here also runs on a simulated disk.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Protocol

from semel.log.batch_search import ReadableFile
from semel.log.compaction_swap import WORK_DIRECTORY
from semel.log.segment import LOG_SUFFIX
from semel.log.types import Offset

SWAP_MANIFEST = "compaction-swap.json"
_PARTITION_NAME = re.compile(r"(.+)-(\d+)\Z")
_SEGMENT_NAME = re.compile(r"(\d{20})(\.[a-z]+)\Z")
_LOCKS = "/proc/locks"


class Files(Protocol):
    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]: ...

    def read_file(self, path: str) -> bytes: ...

    def open(self, path: str) -> ReadableFile: ...


class _RealFile:
    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_at(self, position: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        while len(data) < length:  # a signal, or the end of the file
            more = os.pread(self._descriptor, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealFiles:
    """The files of this machine. Every descriptor is read-only: the system itself refuses a write."""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def open(self, path: str) -> ReadableFile:
        return _RealFile(path)


def is_locked(path: str) -> bool:
    """Whether a living process holds this lock file. Taking the lock to find out would be in a starting node's way."""
    try:
        inode = os.stat(path).st_ino
        with open(_LOCKS) as locks:
            # 1: FLOCK  ADVISORY  WRITE 1234 08:02:131 0 EOF
            return any(line.split()[5].rpartition(":")[2] == str(inode) for line in locks if "->" not in line)
    except (OSError, IndexError):
        return False


def partition_of(directory: str) -> tuple[str, int] | None:
    """Topic and partition of a directory's name."""
    found = _PARTITION_NAME.match(os.path.basename(directory.rstrip("/")))
    return None if found is None else (found[1], int(found[2]))


@dataclass(frozen=True)
class PartitionFiles:
    """The files of one partition as the next start will find them: a compaction that was decided counts as done."""

    files: Files
    directory: str
    paths: dict[str, str]
    is_swapping: bool = False
    manifest_problem: str | None = None

    def offsets(self, suffix: str) -> list[Offset]:
        """The offsets in the names of the files with this suffix, in order."""
        matches = [_SEGMENT_NAME.match(name) for name in self.paths]
        return sorted(int(found[1]) for found in matches if found is not None and found[2] == suffix)

    @property
    def bases(self) -> list[Offset]:
        return self.offsets(LOG_SUFFIX)

    def path(self, base: Offset, suffix: str) -> str:
        name = f"{base:020d}{suffix}"
        return self.paths.get(name, f"{self.directory}/{name}")

    def has(self, base: Offset, suffix: str) -> bool:
        return f"{base:020d}{suffix}" in self.paths

    def read(self, base: Offset, suffix: str) -> bytes | None:
        """A small file, whole; None when it is not there."""
        try:
            return self.files.read_file(self.path(base, suffix))
        except FileNotFoundError:
            return None

    def read_name(self, name: str) -> bytes | None:
        try:
            return self.files.read_file(self.paths.get(name, f"{self.directory}/{name}"))
        except FileNotFoundError:
            return None


def open_partition(files: Files, directory: str) -> PartitionFiles:
    paths = {name: f"{directory}/{name}" for name in files.list_dir(directory)}
    paths = {name: path for name, path in paths.items() if name == SWAP_MANIFEST or not files.is_dir(path)}
    if SWAP_MANIFEST not in paths:
        return PartitionFiles(files, directory, paths)
    try:
        manifest = json.loads(files.read_file(paths[SWAP_MANIFEST]))
        old_bases = [int(base) for base in manifest["old_bases"]]
        new_files = [str(name) for name in manifest["new_files"]]
    except (ValueError, KeyError, TypeError) as error:
        return PartitionFiles(files, directory, paths, manifest_problem=f"{type(error).__name__}: {error}")
    old = {f"{base:020d}" for base in old_bases}
    paths = {name: path for name, path in paths.items() if name[:20] not in old or name in new_files or "." not in name}
    for name in new_files:
        made = f"{directory}/{WORK_DIRECTORY}/{name}"
        if files.exists(made):
            paths[name] = made
    return PartitionFiles(files, directory, paths, is_swapping=True)
