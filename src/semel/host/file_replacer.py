"""Durable replacement of small files, made of a Disk's own calls: temporary file, flush, rename, sync of the directory.

Real and simulated disks share it, so a simulated power loss strikes between the very steps that the real one takes.
"""

from __future__ import annotations

import os
from contextlib import suppress

from semel.host.api import Buffer, Disk


class _Turns:
    """Replacements of one path that are under way: how many, and the latest that took its place."""

    __slots__ = ("begun", "landed", "under_way")

    def __init__(self) -> None:
        self.begun = 0
        self.landed = 0
        self.under_way = 0


def _parent(path: str) -> str:
    return os.path.dirname(path) or "."


class FileReplacer:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._turns: dict[str, _Turns] = {}

    async def replace(self, path: str, data: Buffer) -> None:
        """Paths are those of the disk's own spelling, so that two calls for one file meet."""
        turn, temporary = self._begin(path)
        try:
            file = self._disk.open(temporary, create=True)
            try:
                file.write_at(0, data)
                await file.flush()
            finally:
                file.close()
            self._land(path, temporary, turn)
        except BaseException:
            self._give_up(temporary)
            raise
        finally:
            self._end(path)
        await self._disk.sync_dir(_parent(path))

    def replace_now(self, path: str, data: Buffer) -> None:
        turn, temporary = self._begin(path)
        try:
            file = self._disk.open(temporary, create=True)
            try:
                file.write_at(0, data)
                file.flush_now()
            finally:
                file.close()
            self._land(path, temporary, turn)
        except BaseException:
            self._give_up(temporary)
            raise
        finally:
            self._end(path)
        self._disk.sync_dir_now(_parent(path))

    def _begin(self, path: str) -> tuple[int, str]:
        turns = self._turns.setdefault(path, _Turns())
        turns.begun += 1
        turns.under_way += 1
        # A crash leaves at most the plain name behind, except while several replacements of one path overlapped.
        temporary = f"{path}.tmp" if turns.under_way == 1 else f"{path}.{turns.begun}.tmp"
        if self._disk.exists(temporary):
            self._disk.remove(temporary)
        return turns.begun, temporary

    def _land(self, path: str, temporary: str, turn: int) -> None:
        turns = self._turns[path]
        if turn < turns.landed:  # a later call has overtaken us while we flushed: its content stays
            self._disk.remove(temporary)
        else:
            self._disk.rename(temporary, path)
            turns.landed = turn

    def _give_up(self, temporary: str) -> None:
        with suppress(OSError):
            self._disk.remove(temporary)

    def _end(self, path: str) -> None:
        turns = self._turns[path]
        turns.under_way -= 1
        if turns.under_way == 0:
            del self._turns[path]
