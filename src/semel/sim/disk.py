"""The simulated Disk: a medium in memory that counts every changing call and fails where it is told to.

It loses power before, during or after a chosen call, fills up, returns errors, flips bits, takes its time to flush, and
keeps a log of its calls. What survives a power loss is decided by `semel.sim.medium`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random as random_module
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, NoReturn

from semel.host.api import AlreadyLocked, Buffer
from semel.host.file_replacer import FileReplacer
from semel.sim.file import SimFile
from semel.sim.medium import Content, Directory, Medium
from semel.sim.power import PowerLost

When = Literal["before", "during", "after"]
Kind = Literal["create", "write", "truncate", "flush", "mkdir", "rename", "remove", "sync_dir", "read"]

__all__ = ["Call", "PowerLost", "SimDisk", "SimLock"]

LOGGED_CALLS = 10_000
KNOWN_PATHS = 10_000


class Call(NamedTuple):
    number: int
    kind: Kind
    path: str
    detail: str


class _Fault:
    def __init__(self, nth: int, times: int, error_number: int) -> None:
        self.nth = nth
        self.times = times
        self.error_number = error_number


class SimLock:
    def __init__(self, held: dict[str, SimLock], path: str) -> None:
        self._held = held
        self._path = path
        held[path] = self

    def close(self) -> None:
        if self._held.get(self._path) is self:
            del self._held[self._path]


class SimDisk:
    """One node's disk as one process sees it. Paths are absolute; a relative one starts at the root."""

    def __init__(
        self,
        random: random_module.Random | int = 0,
        *,
        capacity_bytes: int = 1 << 40,
        flush_latency_ms: tuple[float, float] = (0.0, 0.0),
        cold_chance: float = 0.0,
        process_id: int = 1,
        on_power_lost: Callable[[], None] | None = None,
        medium: Medium | None = None,
        boot: int = 1,
    ) -> None:
        self.random = random_module.Random(random) if isinstance(random, int) else random
        self.capacity_bytes = capacity_bytes
        self.flush_latency_ms = flush_latency_ms
        self.cold_chance = cold_chance
        self.process_id = process_id
        self.boot = boot
        self.on_power_lost = on_power_lost
        self.medium = Medium() if medium is None else medium
        self.dead = False
        self.calls = 0
        self.log: deque[Call] = deque(maxlen=LOGGED_CALLS)
        self._used_bytes = sum(len(content.data) for content in self.medium.contents())
        self._crash_call = 0
        self._crash_when: When = "before"
        self._faults: dict[Kind, list[_Fault]] = {}
        self._files: dict[SimFile, None] = {}
        """Open ones, in the order in which they were opened."""
        self._locks: dict[str, SimLock] = {}
        self._replacer = FileReplacer(self)

    # Faults, for the tests

    def crash_at(self, call: int, when: When = "before") -> None:
        """Lose power at the changing call with this number: `calls` counts them from 1, reads are not counted."""
        self._crash_call = call
        self._crash_when = when

    def fail_at(self, kind: Kind, nth: int = 1, error_number: int = errno.EIO, times: int = 1) -> None:
        """Raise OSError at the nth call of a kind from now on, and at the following ones, `times` in all."""
        self._faults.setdefault(kind, []).append(_Fault(nth, times, error_number))

    def fill_after(self, length: int) -> None:
        """ENOSPC once this many more bytes were written."""
        self.capacity_bytes = self._used_bytes + length

    def mend(self) -> None:
        """No more errors, and room again."""
        self._faults.clear()
        self.capacity_bytes = 1 << 40

    def content_of(self, path: str) -> bytes | None:
        """What a file holds, if there is such a file: also of a disk that is dead."""
        node = self._node(path)
        return bytes(node.data) if isinstance(node, Content) else None

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        self._content(path).data[position] ^= 1 << bit

    def lose_power(self) -> None:
        """From now on every call raises PowerLost."""
        if not self.dead:
            self.dead = True
            if self.on_power_lost is not None:
                self.on_power_lost()

    def after_power_loss(self, random: random_module.Random | int | None = None) -> SimDisk:
        """A new disk with what survived; this one is dead. Faults and the log of calls are not carried over."""
        self.lose_power()
        if random is None:
            random = self.random
        elif isinstance(random, int):
            random = random_module.Random(random)
        return self._successor(self.medium.survivor(random), boot=self.boot + 1)

    def after_kill(self) -> SimDisk:
        """A new disk for the next process after this one was killed: the page cache, flushed or not, is still there."""
        self.lose_power()
        return self._successor(self.medium, boot=self.boot)

    def after_replacement(self, medium: Medium) -> SimDisk:
        """Another disk in the place of this one, with a copy of what `medium` holds. Nobody may be using this one."""
        return self._successor(medium.copy(), boot=self.boot + 1)

    def _successor(self, medium: Medium, *, boot: int) -> SimDisk:
        return SimDisk(
            self.random,
            capacity_bytes=self.capacity_bytes,
            flush_latency_ms=self.flush_latency_ms,
            cold_chance=self.cold_chance,
            process_id=self.process_id + 1,
            on_power_lost=self.on_power_lost,
            medium=medium,
            boot=boot,
        )

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    # What every call goes through

    def die(self) -> NoReturn:
        self.lose_power()
        raise PowerLost(f"at call {self.calls}")

    def check_alive(self) -> None:
        if self.dead:
            raise PowerLost("the node is dead already")

    def check_fault(self, kind: Kind, path: str) -> None:
        for fault in self._faults.get(kind, ()):
            fault.nth -= 1
        for fault in self._faults.get(kind, ()):
            if fault.nth <= 0 and fault.times > 0:
                fault.times -= 1
                raise OSError(fault.error_number, os.strerror(fault.error_number), path)

    def begin(self, kind: Kind, path: str, detail: str = "") -> When | None:
        """Count and log a changing call; die in it, or say that it is to be died in later ("during" or "after")."""
        self.check_alive()
        self.calls += 1
        self.log.append(Call(self.calls, kind, path, detail))
        if self.calls != self._crash_call:
            return None
        if self._crash_when == "before":
            self.die()
        return self._crash_when

    def _change(self, kind: Kind, path: str, detail: str, apply: Callable[[], None]) -> None:
        """A change that happens whole or not at all."""
        crash = self.begin(kind, path, detail)
        if crash == "during":
            if self.random.random() < 0.5:
                apply()
            self.die()
        self.check_fault(kind, path)
        apply()
        if crash == "after":
            self.die()

    def reading(self, path: str) -> None:
        self.check_alive()
        self.check_fault("read", path)

    def room_bytes(self) -> int:
        return max(0, self.capacity_bytes - self._used_bytes)

    def resized(self, growth: int) -> None:
        self._used_bytes += growth

    async def take_time(self, share: float = 1.0) -> None:
        least, most = self.flush_latency_ms
        latency_ms = self.random.uniform(least, most) if most > least else most
        await asyncio.sleep(latency_ms * share / 1000)
        self.check_alive()

    # Names

    def _node(self, path: str) -> Content | Directory | None:
        node: Content | Directory | None = self.medium.root
        for name in names(path):
            node = node.names.get(name) if isinstance(node, Directory) else None
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _content(self, path: str) -> Content:
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.check_alive()
        path = normal(path)
        if create:
            parent, name = self._directory(os.path.dirname(path)), os.path.basename(path)
            if name in parent.names:
                raise FileExistsError(errno.EEXIST, "file exists", path)
            new = self.medium.new_content()
            self._change("create", path, "", lambda: self.medium.change_names((parent, name, new)))
        file = SimFile(self, path, self._content(path))
        self._files[file] = None
        return file

    def forget(self, file: SimFile) -> None:
        self._files.pop(file, None)

    @property
    def open_files(self) -> int:
        return len(self._files)

    def exists(self, path: str) -> bool:
        self.check_alive()
        return self._node(path) is not None

    def is_dir(self, path: str) -> bool:
        self.check_alive()
        return isinstance(self._node(path), Directory)

    def file_number(self, path: str) -> int:
        self.check_alive()
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node.number

    def list_dir(self, path: str) -> list[str]:
        self.check_alive()
        return sorted(self._directory(path).names)

    def make_dirs(self, path: str) -> None:
        self.check_alive()
        path = normal(path)
        if self._node(path) is not None:
            self._directory(path)
            return
        parent_path, name = os.path.split(path)
        self.make_dirs(parent_path)
        parent, new = self._directory(parent_path), self.medium.new_directory()
        self._change("mkdir", path, "", lambda: self.medium.change_names((parent, name, new)))

    def rename(self, old: str, new: str) -> None:
        self.check_alive()
        old, new = normal(old), normal(new)
        moved, replaced = self._node(old), self._node(new)
        if moved is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        if moved is replaced:
            return
        if isinstance(moved, Directory) and new.startswith(old + "/"):
            raise OSError(errno.EINVAL, "a directory cannot move into itself", new)
        if isinstance(replaced, Directory) and (replaced.names or not isinstance(moved, Directory)):
            raise OSError(errno.ENOTEMPTY if replaced.names else errno.EISDIR, "a directory is in the way", new)
        if isinstance(replaced, Content) and isinstance(moved, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "a file is in the way", new)
        old_parent, new_parent = self._directory(os.path.dirname(old)), self._directory(os.path.dirname(new))
        changes = (old_parent, os.path.basename(old), None), (new_parent, os.path.basename(new), moved)
        self._change("rename", old, new, lambda: self.medium.change_names(*changes))
        if isinstance(replaced, Content):
            self._end_files(replaced)
        if isinstance(moved, Content):
            for file in self._files:
                if file.content is moved:
                    file.path = new
            return
        for file in self._files:
            if file.path.startswith(old + "/"):
                file.path = new + file.path[len(old) :]

    def _end_files(self, content: Content) -> None:
        self._used_bytes -= len(content.data)
        for file in [file for file in self._files if file.content is content]:
            file.end()

    def remove(self, path: str) -> None:
        self.check_alive()
        path = normal(path)
        content = self._content(path)
        self._unlink(path)
        self._end_files(content)

    def _unlink(self, path: str) -> None:
        parent, name = self._directory(os.path.dirname(path)), os.path.basename(path)
        self._change("remove", path, "", lambda: self.medium.change_names((parent, name, None)))

    def remove_tree(self, path: str) -> None:
        path = normal(path)
        for name in self.list_dir(path):
            inner = os.path.join(path, name)
            if self.is_dir(inner):
                self.remove_tree(inner)
            else:
                self.remove(inner)
        self._unlink(path)

    # Durability

    async def sync_dir(self, path: str) -> None:
        self.check_alive()
        directory = self._directory(path)
        crash = self.begin("sync_dir", normal(path))
        self.check_fault("sync_dir", path)
        await self.take_time(0.5 if crash == "during" else 1.0)
        self._sync(directory, crash)

    def sync_dir_now(self, path: str) -> None:
        self.check_alive()
        directory = self._directory(path)
        crash = self.begin("sync_dir", normal(path))
        self.check_fault("sync_dir", path)
        self._sync(directory, crash)

    def sync_parents_now(self, path: str) -> None:
        path = normal(path)
        while path != "/":
            path = os.path.dirname(path)
            self.sync_dir_now(path)

    def _sync(self, directory: Directory, crash: When | None) -> None:
        if crash == "during":
            self.die()
        self.medium.sync(directory)
        if crash == "after":
            self.die()

    async def replace_file(self, path: str, data: Buffer) -> None:
        await self._replacer.replace(normal(path), data)

    def replace_file_now(self, path: str, data: Buffer) -> None:
        self._replacer.replace_now(normal(path), data)

    # The rest

    def read_file(self, path: str) -> bytes:
        self.reading(path)
        return bytes(self._content(path).data)

    def free_bytes(self, path: str) -> int:
        self.check_alive()
        return self.room_bytes()

    def total_bytes(self, path: str) -> int:
        self.check_alive()
        return self.capacity_bytes

    def lock(self, path: str) -> SimLock:
        self.check_alive()
        path = normal(path)
        if path in self._locks:
            raise AlreadyLocked(path, self.process_id)
        if self._node(path) is None:
            self.open(path, create=True).close()
        return SimLock(self._locks, path)

    def close(self) -> None:
        for file in list(self._files):
            file.close()


@lru_cache(KNOWN_PATHS)
def normal(path: str) -> str:
    return os.path.normpath("/" + path.lstrip("/"))


@lru_cache(KNOWN_PATHS)
def names(path: str) -> tuple[str, ...]:
    """From the root on."""
    return tuple(name for name in normal(path).split("/") if name)
