"""The real Disk: files by position, flushed by native threads, with a bounded number of open descriptors.

A File is opened lazily and its descriptor sits in an LRU. Never closed by it: a pinned file (a range of it is queued, a
flush runs), and one with unflushed writes, since Linux may forget a write-back error with the last descriptor: it is
flushed first, off the loop as long as there are descriptors to wait with. Never opened again by path: a file that was
removed or replaced. Readers may pin so many files that those who write always find one that can be closed.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from semel.host.api import AlreadyLocked, Buffer
from semel.host.boot import boot_id
from semel.host.descriptors import is_short, shares
from semel.host.disk_threads import DiskThreads, JobKind, complete, failure, start_disk_threads
from semel.host.file_replacer import FileReplacer
from semel.host.real_file import RealFile

normal = os.path.normpath
T = TypeVar("T")

EVICTION_LOOKS = 64
BACKGROUND_FLUSHES = 8
# Of the files that may be open, those that are kept open; the others are for what cannot be closed at once.
KEPT_PART = 3 / 4
DIRECTORIES_PART = 4
SLOW_TO_FREE_BYTES = 1 << 20


class RealLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    def __init__(self, max_open_files: int | None = None, most_open_files: int | None = None) -> None:
        """`max_open_files`: how many descriptors are kept. `most_open_files`: how many there may be at any time, also
        if the loop has to wait for a flush to close one; by default the share of the disk, or no limit if the other
        one is given."""
        if max_open_files is None:
            most_open_files = shares().files if most_open_files is None else most_open_files
            max_open_files = max(1, int(most_open_files * KEPT_PART))
        self._max_open_files = max_open_files
        self._most_open_files = most_open_files
        self.pinned_files = 0
        self._syncing = 0
        self._opened: OrderedDict[RealFile, None] = OrderedDict()  # with a descriptor, least recently used first
        self.used = self._opened.move_to_end  # to be told of a file whose descriptor is used
        self._files: dict[str, dict[str, list[RealFile]]] = {}  # directory -> name -> files not closed yet
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: DiskThreads | None = None
        self._background_flushes: set[asyncio.Task[None]] = set()
        self._replacer = FileReplacer(self)

    def __reduce__(self) -> tuple[type[RealDisk], tuple[int, int | None]]:
        """In another process: a disk of its own, on the same files."""
        return RealDisk, (self._max_open_files, self._most_open_files)

    @property
    def boot_id(self) -> str:
        return boot_id()

    # Files

    def open(self, path: str, *, create: bool = False) -> RealFile:
        path = normal(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if create else os.O_RDWR
        file = RealFile(self, path, -1)
        self._take_in(file, self._open_descriptor(path, flags))
        self._register(file)
        return file

    def _open_descriptor(self, path: str, flags: int) -> int:
        return self._with_descriptor(lambda: os.open(path, flags | os.O_CLOEXEC, 0o600))

    def _with_descriptor(self, call: Callable[[], T]) -> T:
        """A call of the system that takes a descriptor: if there is none, one of a file is given up for it."""
        while True:
            try:
                return call()
            except OSError as error:
                if not is_short(error) or not self._evict_one(at_once=True):
                    raise

    @property
    def open_files(self) -> int:
        return len(self._opened)

    def reopen(self, file: RealFile) -> int:
        fd = self._open_descriptor(file.path, os.O_RDWR)
        self._take_in(file, fd)
        return fd

    def _take_in(self, file: RealFile, fd: int) -> None:
        file.fd = fd
        self._opened[file] = None
        file.pins += 1  # not to be the one that makes room
        self.make_room()
        file.pins -= 1

    def close_descriptor(self, file: RealFile) -> None:
        fd, file.fd = file.fd, -1
        if fd >= 0:
            self._opened.pop(file, None)
            os.close(fd)

    def make_room(self) -> None:
        """Close descriptors beyond the limit. It is soft: what must stay open stays open, and what is not flushed is
        flushed first. Near the hard limit that is done at once."""
        while len(self._opened) > self._max_open_files and self._evict_one():
            pass
        if self._most_open_files is not None:
            while len(self._opened) > self._most_open_files and self._evict_one(at_once=True):
                pass

    def _evict_one(self, *, at_once: bool = False) -> bool:
        """Close the least recently used descriptor that may be closed. Those that may not get a second round."""
        unflushed = None
        for _ in range(len(self._opened) if at_once else min(EVICTION_LOOKS, len(self._opened))):
            file = next(iter(self._opened))
            if file.pins == 0 and not file.unflushed:
                self.close_descriptor(file)
                return True
            if file.pins == 0 and unflushed is None and file.flush_error is None:
                unflushed = file
            self._opened.move_to_end(file)
        if unflushed is None:
            return False
        return self._flush_to_evict(unflushed, at_once=at_once)

    def _flush_to_evict(self, file: RealFile, *, at_once: bool) -> bool:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            at_once = True
        if at_once:
            with suppress(OSError):  # kept by the file, which raises it at its next flush
                file.flush_now()
                self.close_descriptor(file)
            return True  # or another one is tried
        if len(self._background_flushes) < BACKGROUND_FLUSHES:
            task = loop.create_task(self._flush_in_background(file))
            self._background_flushes.add(task)
            task.add_done_callback(self._background_flushes.discard)
        return False

    def check_may_pin(self) -> None:
        """Before a reader pins a file that nobody has pinned: refused if that could leave none that can be closed."""
        if self._most_open_files is not None and self.pinned_files >= self._max_open_files:
            raise OSError(errno.EMFILE, "too many files are being read at once")

    async def _flush_in_background(self, file: RealFile) -> None:
        with suppress(OSError):  # kept by the file, which raises it at its next flush
            await file.flush()
            self.make_room()

    # Names

    def _register(self, file: RealFile) -> None:
        directory, name = os.path.split(file.path)
        self._files.setdefault(directory, {}).setdefault(name, []).append(file)

    def forget(self, file: RealFile) -> None:
        directory, name = os.path.split(file.path)
        names = self._files.get(directory, {})
        files = names.get(name, [])
        if file in files:
            files.remove(file)
            if not files:
                del names[name]
            if not names:
                del self._files[directory]

    def _files_at(self, path: str) -> list[RealFile]:
        directory, name = os.path.split(path)
        return list(self._files.get(directory, {}).get(name, ()))

    def _files_under(self, path: str) -> list[RealFile]:
        inside = path + os.sep
        directories = [d for d in self._files if d == path or d.startswith(inside)]
        return [file for d in directories for files in self._files[d].values() for file in files]

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def file_number(self, path: str) -> int:
        return os.stat(path).st_ino

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._with_descriptor(lambda: os.listdir(path)))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, 0o700, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        old, new = normal(old), normal(new)
        if old == new:
            os.stat(old)
            return
        os.rename(old, new)
        for file in self._files_at(new):
            file.end()
        for file in self._files_at(old) + self._files_under(old):
            self.forget(file)
            file.path = new + file.path[len(old) :]
            self._register(file)

    def remove(self, path: str) -> None:
        path = normal(path)
        held = self._hold_if_slow_to_free(path)
        try:
            os.unlink(path)
            for file in self._files_at(path):
                file.end()
        finally:
            if held >= 0:
                self._running_threads().submit(JobKind.CLOSE, held, lambda _: None)

    def _hold_if_slow_to_free(self, path: str) -> int:
        """Keep the inode through unlink, so that a thread frees the blocks of a large file: a gigabyte takes long."""
        try:
            asyncio.get_running_loop()
            status = os.lstat(path)
            if status.st_size < SLOW_TO_FREE_BYTES or not stat.S_ISREG(status.st_mode):
                return -1
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, RuntimeError):  # then it is freed here
            return -1

    def remove_tree(self, path: str) -> None:
        path = normal(path)
        for name in self.list_dir(path):
            inner = os.path.join(path, name)
            if os.path.isdir(inner) and not os.path.islink(inner):
                self.remove_tree(inner)
            else:
                self.remove(inner)
        os.rmdir(path)

    # Durability

    def _running_threads(self) -> DiskThreads:
        threads = self._threads
        if threads is not None and (threads.is_closed or (self._loop is not None and self._loop.is_running())):
            return threads  # those that are being closed say so to whoever asks meanwhile
        loop = asyncio.get_running_loop()
        if self._threads is None or loop is not self._loop:
            if self._threads is not None:
                self._threads.close()
            self._threads = start_disk_threads(loop)
            self._loop = loop
        return self._threads

    def submit(
        self, kind: JobKind, file: RealFile, when_done: Callable[[int], None], position: int = 0, length: int = 0
    ) -> None:
        """Start a job on a file, which is pinned: `when_done` unpins it."""
        threads = self._running_threads()
        file.hold()
        threads.submit(kind, file.fd, when_done, position, length)

    async def sync_dir(self, path: str) -> None:
        threads = self._running_threads()
        if self._most_open_files is not None and self._syncing >= max(1, self._most_open_files // DIRECTORIES_PART):
            self.sync_dir_now(path)  # a directory that waits may be gone when it is its turn
            return
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fd = self._open_dir(path)
        self._syncing += 1

        def done(error: int) -> None:
            self._syncing -= 1
            os.close(fd)
            complete(synced, failure(error, path))

        threads.submit(JobKind.FSYNC, fd, done)
        await synced

    def sync_dir_now(self, path: str) -> None:
        fd = self._open_dir(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _open_dir(self, path: str) -> int:
        return self._with_descriptor(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def sync_parents_now(self, path: str) -> None:
        path = os.path.realpath(path)
        device = os.stat(path).st_dev
        while path != "/":
            path = os.path.dirname(path)
            if os.stat(path).st_dev != device:
                return  # `make_dirs` does not mount
            try:
                self.sync_dir_now(path)
            except PermissionError:  # somebody else's: nothing above it is ours
                return

    async def replace_file(self, path: str, data: Buffer) -> None:
        await self._replacer.replace(normal(path), data)

    def replace_file_now(self, path: str, data: Buffer) -> None:
        self._replacer.replace_now(normal(path), data)

    # The rest

    def read_file(self, path: str) -> bytes:
        with self._with_descriptor(lambda: open(path, "rb")) as stream:
            return stream.read()

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def lock(self, path: str) -> RealLock:
        fd = self._open_descriptor(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).strip()  # empty for the moment between its lock and its first write
            os.close(fd)
            raise AlreadyLocked(path, int(holder) if holder.isdigit() else None) from None
        except OSError:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        return RealLock(fd)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()
            self._threads = None
        for file in [file for names in self._files.values() for files in names.values() for file in files]:
            file.close()
