"""One file of the real Disk: positional reads and writes on a descriptor that the disk may close and open again."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from semel.host.api import Buffer
from semel.host.disk_threads import JobKind, complete, failure

if TYPE_CHECKING:
    from semel.host.real_disk import RealDisk

MAX_PARTS = 1024  # IOV_MAX
SAMPLE_BYTES = 64 * 1024


class RealFile:
    __slots__ = (
        "_closed",
        "_disk",
        "_gone",
        "_under_way",
        "_used",
        "_wanted",
        "fd",
        "flush_error",
        "path",
        "pins",
        "unflushed",
    )

    def __init__(self, disk: RealDisk, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd  # -1: the disk has closed it for now
        self.pins = 0
        self.unflushed = False
        self.flush_error: OSError | None = None
        self._disk = disk
        self._used = disk.used
        # Who is told of the flush that runs, and who of the next one.
        self._under_way: list[Callable[[OSError | None], None]] = []
        self._wanted: list[Callable[[OSError | None], None]] = []
        self._closed = False
        self._gone = False

    def __repr__(self) -> str:
        return f"RealFile({self.path!r})"

    def descriptor(self) -> int:
        """The open descriptor. It stays valid until the next call to the disk, or as long as the file is pinned."""
        if self.fd >= 0:
            self._used(self)
            return self.fd
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if self._gone:
            raise FileNotFoundError(errno.ENOENT, "the file was removed or replaced", self.path)
        return self._disk.reopen(self)

    def size(self) -> int:
        return os.fstat(self.descriptor()).st_size

    def write_at(self, position: int, *parts: Buffer) -> None:
        fd = self.fd
        if fd >= 0:
            self._used(self)
        else:
            fd = self.descriptor()
        self.unflushed = True
        if len(parts) == 1:
            part = parts[0]
            written = os.pwrite(fd, part, position)
            if written != len(part):
                self._write_rest(fd, position + written, [memoryview(part)[written:]])
        elif parts and (len(parts) > MAX_PARTS or os.pwritev(fd, parts, position) < sum(map(len, parts))):
            self._write_rest(fd, position, list(parts))

    def _write_rest(self, fd: int, position: int, parts: list[Buffer]) -> None:
        first = 0
        while first < len(parts):
            written = os.pwritev(fd, parts[first : first + MAX_PARTS], position)
            position += written
            while first < len(parts) and written >= len(parts[first]):
                written -= len(parts[first])
                first += 1
            if written:
                parts[first] = memoryview(parts[first])[written:]

    def read_at(self, position: int, length: int) -> bytes:
        fd = self.descriptor()
        data = os.pread(fd, length, position)
        if len(data) == length or not data:
            return data
        pieces = [data]  # a signal or a limit of the system cut it short, or it is the end
        got = len(data)
        while got < length and (data := os.pread(fd, length - got, position + got)):
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        fd = self.descriptor()
        wanted = len(buffer)
        got = os.preadv(fd, [buffer], position)
        if got == wanted or got == 0:
            return got
        view = memoryview(buffer)
        while got < wanted and (more := os.preadv(fd, [view[got:]], position + got)):
            got += more
        return got

    def truncate(self, length: int) -> None:
        fd = self.descriptor()
        self.unflushed = True
        os.ftruncate(fd, length)

    async def flush(self) -> None:
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flush_then(partial(complete, flushed))
        await flushed

    def flush_then(self, done: Callable[[OSError | None], None]) -> None:
        if self.flush_error is not None:
            asyncio.get_running_loop().call_soon(done, self.flush_error)
            return
        self.descriptor()  # what cannot be opened now is refused before anything is noted
        self._wanted.append(done)
        # One at a time: of two that run side by side on one descriptor, Linux tells only one of a failed write-back.
        if not self._under_way:
            self._begin_flush()

    def _begin_flush(self) -> None:
        """One for all who have asked so far."""
        self._under_way, self._wanted = self._wanted, []
        self.unflushed = False  # what is written from here on is for the next flush
        self._disk.submit(JobKind.FDATASYNC, self, self.flush_done)  # which tells at once, if the disk is being closed

    def flush_done(self, error: int) -> None:
        ended, self._under_way = self._under_way, []
        failed = failure(error, self.path)
        if failed is not None:
            self._remember(failed)
        told = self.flush_error
        if self._wanted and told is None:
            self._begin_flush()
        else:
            ended += self._wanted
            self._wanted = []
        self.unpin()
        for done in ended:
            done(told)

    def flush_now(self) -> None:
        if self.flush_error is not None:
            raise self.flush_error
        try:
            os.fdatasync(self.descriptor())
        except OSError as error:
            self._remember(error)
            raise
        self.unflushed = False

    def _remember(self, error: OSError) -> None:
        # Linux reports a failed write-back once and marks the pages clean: a second flush would lie.
        self.unflushed = True
        self.flush_error = error

    def is_warm(self, position: int, length: int) -> bool:
        fd = self.descriptor()
        byte = bytearray(1)
        sample = position + length - 1  # from the end: who asks has mostly just read the beginning
        try:
            while sample >= position:
                os.preadv(fd, [byte], sample, os.RWF_NOWAIT)
                sample -= SAMPLE_BYTES
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return False
            raise
        return True

    async def warm(self, position: int, length: int) -> None:
        warmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: int) -> None:
            self.unpin()
            complete(warmed, failure(error, self.path))

        self._disk.submit(JobKind.WARM, self, done, position, length)
        await warmed

    def pin(self) -> None:
        if self.pins == 0:
            self._disk.check_may_pin()
        self.hold()

    def hold(self) -> None:
        self.descriptor()  # from here on it is open, so that a removal does not take it away
        if self.pins == 0:
            self._disk.pinned_files += 1
        self.pins += 1

    def unpin(self) -> None:
        if self.pins == 0:
            raise ValueError(f"{self.path} is not pinned")
        self.pins -= 1
        if self.pins == 0:
            self._disk.pinned_files -= 1
        if self.pins == 0 and (self._closed or self._gone):
            self._disk.close_descriptor(self)

    def end(self) -> None:
        """The name was removed or given to another file: only pins keep the content from now on."""
        self._disk.forget(self)
        self._gone = True
        if self.pins == 0:
            self._disk.close_descriptor(self)

    def close(self) -> None:
        if not self._closed:
            self._disk.forget(self)
            self._closed = True
            if self.pins == 0:
                self._disk.close_descriptor(self)
