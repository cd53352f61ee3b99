"""How far each log was flushed, and that it was opened here, noted at once and without a flush: `semel-marks`.

The recovery points are written once a minute, because that takes flushes of its own. A mark costs a write to the page
cache, so there is one half a second after every flush. After a kill the marks are all there. After a power loss some
may be missing, or old: what they say is true all the same, and a checksum in each line tells torn ones.

The first line names the boot of the machine. A partition that has a mark of this boot was opened in it: what had come
of earlier ones was made durable then, and what was written since is in the page cache. Nothing of it can be torn but
the last write of a process that was killed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from semel.host.api import Disk, File
from semel.log.checkpoints import TopicPartition
from semel.log.inventory import SmallFiles
from semel.log.types import Offset

FILE_NAME = "semel-marks"
_HEAD = "semel-marks 1"
_EARLIER = "earlier"

Owner = tuple[str, int, str]
"""Topic, partition, topic id."""


def _line(text: str) -> bytes:
    return f"{text} {crc32c(text.encode()):08x}\n".encode()


class Marks(NamedTuple):
    """As they stand in the file."""

    token: str
    boot_id: str
    offsets: dict[Owner, Offset]
    earlier: set[Owner]

    def of_boot(self, boot_id: str) -> set[Owner]:
        """Those that were opened in this boot."""
        return self.offsets.keys() - self.earlier if boot_id and boot_id == self.boot_id else set()


def read_marks(disk: SmallFiles, root: str) -> Marks:
    try:
        data = disk.read_file(f"{root}/{FILE_NAME}")
    except OSError:
        data = b""
    marks = Marks("", "", {}, set())
    for line in data.split(b"\n"):
        text = line.rpartition(b" ")[0].decode(errors="replace")
        if not text or _line(text) != line + b"\n":
            continue
        if text.startswith(_HEAD):
            token, _, boot_id = text.removeprefix(_HEAD).strip().partition(" ")
            marks = marks._replace(token=token, boot_id=boot_id)
            continue
        topic, index, topic_id, offset, *earlier = text.split(" ")
        owner = (topic, int(index), topic_id)
        marks.offsets[owner] = int(offset)
        (marks.earlier.add if earlier else marks.earlier.discard)(owner)
    return marks


class FlushedMarks:
    """Best effort: a disk without room takes no marks, and a start then knows less."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._path = f"{root}/{FILE_NAME}"
        self._token = ""
        self._file: File | None = None
        self._size_bytes = 0
        self._found: dict[Owner, Offset] = {}
        self._of_this_boot: set[Owner] = set()
        self._noted: dict[Owner, Offset] = {}
        # Of an earlier boot, until they are noted in this one.
        self._earlier: dict[Owner, Offset] = {}

    def open(self, token: str) -> None:
        """Reads what earlier runs have noted, if they had the same token, and begins anew. What was noted of partitions
        that are not loaded in this run goes on to the next."""
        self._token = token
        found = read_marks(self._disk, self._root)
        if found.token == token:
            self._found = found.offsets
            self._of_this_boot = found.of_boot(self._disk.boot_id)
            for owner, offset in self._found.items():
                (self._noted if owner in self._of_this_boot else self._earlier)[owner] = offset
        self.begin_anew()

    def durable_offset(self, owner: Owner) -> Offset:
        return self._found.get(owner, 0)

    def was_here_in_this_boot(self, owner: Owner) -> bool:
        return owner in self._of_this_boot

    def note(self, flushed: dict[Owner, Offset]) -> None:
        lines = [
            _line(f"{topic} {index} {topic_id} {offset}")
            for (topic, index, topic_id), offset in flushed.items()
            if self._noted.get((topic, index, topic_id)) != offset
        ]
        if lines and self._file is not None:
            with suppress(OSError):
                self._file.write_at(self._size_bytes, b"".join(lines))
                self._size_bytes += sum(map(len, lines))
                self._noted |= flushed
                for owner in flushed.keys() & self._earlier.keys():
                    del self._earlier[owner]

    def forget(self, key: TopicPartition) -> None:
        for marks in (self._noted, self._earlier, self._found):
            for owner in [owner for owner in marks if owner[:2] == key]:
                del marks[owner]

    def begin_anew(self) -> None:
        """With one line for each partition, so that the file does not grow for ever. A rename, so that a process that
        is killed meanwhile leaves the old marks or the new ones."""
        temporary = f"{self._path}.tmp"
        lines = [_line(f"{_HEAD} {self._token} {self._disk.boot_id}")]
        lines += [_line(f"{topic} {index} {topic_id} {at}") for (topic, index, topic_id), at in self._noted.items()]
        for (topic, index, topic_id), at in self._earlier.items():
            lines.append(_line(f"{topic} {index} {topic_id} {at} {_EARLIER}"))
        data = b"".join(lines)
        try:
            if self._disk.exists(temporary):
                self._disk.remove(temporary)
            file = self._disk.open(temporary, create=True)
            file.write_at(0, data)
            self._disk.rename(temporary, self._path)
        except OSError:
            return
        self.close()
        self._file, self._size_bytes = file, len(data)

    async def lower(self, ends: dict[Owner, Offset]) -> None:
        """Before logs are cut: what is noted of them has to be true afterwards, also after a power loss."""
        for owner, offset in ends.items():
            self.forget(owner[:2])
            self._noted[owner] = offset
        self.begin_anew()
        if self._file is not None:
            await self._file.flush()
        await self._disk.sync_dir(self._path.rpartition("/")[0])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
