"""A file of the simulated disk. It is strict about the File interface: what real files forgive, it refuses."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from semel.host.api import Buffer
from semel.sim.medium import Content

if TYPE_CHECKING:
    from semel.sim.disk import SimDisk


class SimFile:
    def __init__(self, disk: SimDisk, path: str, content: Content) -> None:
        self.path = path
        self.content = content
        self.pins = 0
        self._disk = disk
        self._flush_error: OSError | None = None
        self._closed = False
        self._gone = False

    def __repr__(self) -> str:
        return f"SimFile({self.path!r})"

    def _usable(self) -> Content:
        self._disk.check_alive()
        if self.pins == 0 and self._closed:
            raise ValueError(f"{self.path} is closed")
        if self.pins == 0 and self._gone:
            raise FileNotFoundError(errno.ENOENT, "the file was removed or replaced", self.path)
        return self.content

    def size(self) -> int:
        return len(self._usable().data)

    def write_at(self, position: int, *parts: Buffer) -> None:
        content = self._usable()
        if position < 0:
            raise OSError(errno.EINVAL, "negative position", self.path)
        data = b"".join(parts)
        crash = self._disk.begin("write", self.path, f"{len(data)} at {position}")
        if crash == "during":
            self._write(content, position, data[: self._disk.random.randint(0, len(data))])
            self._disk.die()
        try:
            self._disk.check_fault("write", self.path)
        except OSError:
            self._write(content, position, data[: self._disk.random.randint(0, len(data))])
            raise
        fits = self._disk.room_bytes() - max(0, position - len(content.data)) + max(0, len(content.data) - position)
        self._write(content, position, data[: max(0, fits)])
        if crash == "after":
            self._disk.die()
        if fits < len(data):
            raise OSError(errno.ENOSPC, "no space left on device", self.path)

    def _write(self, content: Content, position: int, data: bytes) -> None:
        before = len(content.data)
        content.write(position, data)
        self._disk.resized(len(content.data) - before)

    def read_at(self, position: int, length: int) -> bytes:
        content = self._usable()
        self._disk.reading(self.path)
        if position < 0 or length < 0:
            raise OSError(errno.EINVAL, "negative position or length", self.path)
        return bytes(content.data[position : position + length])

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def truncate(self, length: int) -> None:
        content = self._usable()
        crash = self._disk.begin("truncate", self.path, f"to {length}")
        if crash == "during" and self._disk.random.random() < 0.5:
            self._disk.die()
        self._disk.check_fault("truncate", self.path)
        before = len(content.data)
        content.truncate(length)
        self._disk.resized(len(content.data) - before)
        if crash is not None:
            self._disk.die()

    async def flush(self) -> None:
        """Covers what was written before the call: what is written while it runs is for the next one."""
        content = self._usable()
        if self._flush_error is not None:
            raise self._flush_error
        crash = self._disk.begin("flush", self.path)
        mark = content.changes()
        self.pin()
        try:
            await self._disk.take_time(0.5 if crash == "during" else 1.0)
            if crash == "during":
                self._disk.die()
            self._check_flush(content, mark)
            content.flushed(mark)
            if crash == "after":
                self._disk.die()
        finally:
            self.unpin()

    def flush_then(self, done: Callable[[OSError | None], None]) -> None:
        def ended(flushing: asyncio.Task[None]) -> None:
            if not flushing.cancelled():  # else its node is dead
                done(flushing.exception())  # type: ignore[arg-type]

        asyncio.get_running_loop().create_task(self.flush()).add_done_callback(ended)

    def flush_now(self) -> None:
        content = self._usable()
        if self._flush_error is not None:
            raise self._flush_error
        crash = self._disk.begin("flush", self.path)
        if crash == "during":
            self._disk.die()
        self._check_flush(content, content.changes())
        content.flushed(content.changes())
        if crash == "after":
            self._disk.die()

    def _check_flush(self, content: Content, mark: int) -> None:
        try:
            self._disk.check_fault("flush", self.path)
        except OSError as error:
            content.flush_failed(mark)
            self._flush_error = error
        if self._flush_error is not None:  # ours, or of a flush that ran beside ours
            raise self._flush_error

    def is_warm(self, position: int, length: int) -> bool:
        self._usable()
        return self._disk.cold_chance == 0 or self._disk.random.random() >= self._disk.cold_chance

    async def warm(self, position: int, length: int) -> None:
        self._usable()
        self.pin()
        try:
            await self._disk.take_time()
            self._disk.reading(self.path)
        finally:
            self.unpin()

    def pin(self) -> None:
        self._usable()
        self.pins += 1

    def unpin(self) -> None:
        if self.pins == 0:
            raise ValueError(f"{self.path} is not pinned")
        self.pins -= 1

    def end(self) -> None:
        """The name was removed or given to another file: only pins keep the content from now on."""
        self._disk.forget(self)
        self._gone = True

    def close(self) -> None:
        self._disk.forget(self)
        self._closed = True
