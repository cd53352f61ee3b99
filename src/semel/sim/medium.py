"""What a simulated disk holds, and what of it survives a power loss.

A write is safe once the file was flushed, a name once its directory was synced. Of all else anything may survive, as
POSIX allows: per sector of 512 bytes any state that the sector has been in since the last flush (zeros where the file
had not reached), any of the sizes the file has had, and any of the creations, renames and removals (with
what they build on). So data may come back behind a truncation that was not flushed, and a flushed file may vanish
whose name was not synced.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Iterator
from enum import IntEnum

SECTOR_BYTES = 512


class Survival(IntEnum):
    """How a power loss treats one file: extremes are drawn as often as mixtures, since bugs live there."""

    EVERYTHING = 0
    NOTHING = 1
    SIZE_ONLY = 2  # the file has grown, its new sectors were never written
    IN_ORDER = 3  # a torn tail: sectors up to some point are new, the others old
    ANY_MIX = 4
    ANY_MIX_OF_NEWEST_SIZE = 5


class Content:
    """The bytes of one file: as read now, and for every sector changed since a flush what it was before each change."""

    def __init__(self, number: int, data: bytes = b"") -> None:
        self.number = number
        self.data = bytearray(data)
        self._changes = 0
        self._sectors_before: dict[int, list[tuple[int, bytes]]] = {}
        self._sizes_before: list[tuple[int, int]] = []
        self._failed: dict[int, int] = {}
        """Sectors that a flush could not write, with its mark. As on Linux they count as clean: a later flush does not
        write them, unless they are written to once more."""

    def write(self, position: int, data: bytes) -> None:
        if not data:
            return
        end = position + len(data)
        self._changes += 1
        self._remember_sectors(position, end)
        size = len(self.data)
        if end > size:
            self._sizes_before.append((self._changes, size))
            if position > size:
                self.data.extend(bytes(position - size))
        self.data[position:end] = data

    def truncate(self, length: int) -> None:
        size = len(self.data)
        if length == size:
            return
        self._changes += 1
        self._sizes_before.append((self._changes, size))
        if length < size:
            self._remember_sectors(length, size)
            del self.data[length:]
        else:
            self.data.extend(bytes(length - size))

    def _remember_sectors(self, position: int, end: int) -> None:
        for sector in range(position // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            before = bytes(self.data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
            self._sectors_before.setdefault(sector, []).append((self._changes, before))

    @property
    def unflushed(self) -> bool:
        return bool(self._sectors_before or self._sizes_before)

    def changes(self) -> int:
        """A mark of now, for `flushed`: what is changed later is not covered by a flush that began earlier."""
        return self._changes

    def flushed(self, mark: int) -> None:
        for sector in list(self._sectors_before):
            if sector in self._failed:
                if not any(self._failed[sector] < change <= mark for change, _ in self._sectors_before[sector]):
                    continue
                del self._failed[sector]
            later = [entry for entry in self._sectors_before[sector] if entry[0] > mark]
            if later:
                self._sectors_before[sector] = later
            else:
                del self._sectors_before[sector]
        if not self._failed:  # else the size may be told by what was not written
            self._sizes_before = [entry for entry in self._sizes_before if entry[0] > mark]

    def flush_failed(self, mark: int) -> None:
        for sector, versions in self._sectors_before.items():
            if versions[0][0] <= mark:
                self._failed[sector] = mark

    def survivor(self, random: random_module.Random) -> bytes:
        """The bytes after a power loss."""
        if not self.unflushed:
            return bytes(self.data)
        how = Survival(random.randrange(len(Survival)))
        sizes = [size for _, size in self._sizes_before] + [len(self.data)]
        if how is Survival.NOTHING:
            size = sizes[0]
        elif how is Survival.ANY_MIX:
            size = random.choice(sizes)
        else:
            size = sizes[-1]
        sectors = sorted(self._sectors_before)
        first_lost = random.randint(0, len(sectors)) if how is Survival.IN_ORDER else 0
        result = bytearray(max(size, len(self.data)))
        result[: len(self.data)] = self.data
        for index, sector in enumerate(sectors):
            if how is Survival.EVERYTHING or (how is Survival.IN_ORDER and index < first_lost):
                continue
            versions = [before for _, before in self._sectors_before[sector]]
            if how in (Survival.ANY_MIX, Survival.ANY_MIX_OF_NEWEST_SIZE):
                version = random.randint(0, len(versions))
                if version == len(versions):
                    continue
            else:
                version = 0
            start = sector * SECTOR_BYTES
            result[start : start + SECTOR_BYTES] = versions[version].ljust(SECTOR_BYTES, b"\0")
        return bytes(result[:size].ljust(size, b"\0"))


class Directory:
    """Names as they are now, and as they are sure to be after a power loss."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, Content | Directory] = {}
        self.durable_names: dict[str, Content | Directory] = {}


Node = Content | Directory
Assignment = tuple[Directory, str, Node | None]


class Medium:
    def __init__(self, first_number: int = 1) -> None:
        self._next_number = first_number
        self.root = Directory(0)
        self._pending: list[list[Assignment]] = []  # changes of names in order; each survives whole or not at all

    def _number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number

    def new_content(self) -> Content:
        return Content(self._number())

    def new_directory(self) -> Directory:
        return Directory(self._number())

    def change_names(self, *assignments: Assignment) -> None:
        """One change of the tree: a creation, a removal (None), or a rename, which is both at once."""
        for directory, name, node in assignments:
            _assign(directory.names, name, node)
        self._pending.append(list(assignments))

    def sync(self, directory: Directory) -> None:
        """Make all changes that touch a directory durable, with what they build on."""
        touching = [any(touched is directory for touched, _, _ in change) for change in self._pending]
        durable = self._with_foundations(touching)
        for change, is_durable in zip(self._pending, durable, strict=True):
            if is_durable:
                for touched, name, node in change:
                    _assign(touched.durable_names, name, node)
        self._pending = [change for change, gone in zip(self._pending, durable, strict=True) if not gone]

    def _with_foundations(self, chosen: list[bool]) -> list[bool]:
        """Choose earlier changes of the same names too: no file system keeps a second rename and forgets the first."""
        names: set[tuple[int, str]] = set()
        complete: list[bool] = []
        for change, is_chosen in zip(reversed(self._pending), reversed(chosen), strict=True):
            changed = {(directory.number, name) for directory, name, _ in change}
            if is_chosen or not names.isdisjoint(changed):
                names |= changed
                complete.append(True)
            else:
                complete.append(False)
        return complete[::-1]

    def contents(self, directory: Directory | None = None) -> Iterator[Content]:
        for node in (directory or self.root).names.values():
            if isinstance(node, Content):
                yield node
            else:
                yield from self.contents(node)

    def copy(self) -> Medium:
        """A new medium with what can be read now, all of it safe: as a backup, put on another disk. Its files are
        others, and have other numbers."""
        medium = Medium(self._next_number)

        def copied(node: Node) -> Node:
            if isinstance(node, Content):
                content = medium.new_content()
                content.data = bytearray(node.data)
                return content
            directory = medium.new_directory() if node.number else medium.root
            for name, inner in sorted(node.names.items()):
                directory.names[name] = directory.durable_names[name] = copied(inner)
            return directory

        copied(self.root)
        return medium

    def survivor(self, random: random_module.Random) -> Medium:
        """A new medium with what a power loss leaves."""
        names: dict[int, dict[str, Node]] = {}

        def durable(directory: Directory) -> dict[str, Node]:
            return names.setdefault(directory.number, dict(directory.durable_names))

        chance = random.choice((0.0, 0.25, 0.5, 0.75, 1.0))
        survives = self._with_foundations([random.random() < chance for _ in self._pending])
        for change, is_kept in zip(self._pending, survives, strict=True):
            if is_kept:
                for directory, name, node in change:
                    _assign(durable(directory), name, node)

        medium = Medium(self._next_number)
        copies: dict[int, Node] = {}

        def copy(node: Node) -> Node:
            if node.number in copies:
                return copies[node.number]
            if isinstance(node, Content):
                content = copies[node.number] = Content(node.number, node.survivor(random))
                return content
            directory = copies[node.number] = Directory(node.number) if node.number else medium.root
            for name, inner in sorted(durable(node).items()):
                directory.names[name] = directory.durable_names[name] = copy(inner)
            return directory

        copy(self.root)
        return medium


def _assign(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
