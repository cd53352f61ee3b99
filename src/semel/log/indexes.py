"""The sparse indexes of a segment, in Kafka's formats: offset -> position, timestamp -> offset, aborted transactions.

The index of the active segment lives in memory and is written out when the segment is sealed or the node stops
cleanly: recovery rebuilds it from the log otherwise, so a produce costs no index write. The index of a sealed segment
is searched in its file, and costs no memory.
"""

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from semel.host.api import Buffer, Disk, File
from semel.log.index_kernel import last_up_to
from semel.log.types import Offset, ProducerId

# Searched in one read: a read of some kilobytes takes as long as two of a single entry.
_BLOCK_ENTRIES = 2048
_LIKELY_ENTRIES = 512
_PIECE_BYTES = 1 << 20


class IndexFile:
    """Entries of one fixed size in one file, which is made when there is something to put into it."""

    entry: Struct

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._file: File | None = disk.open(path) if disk.exists(path) else None
        size = 0 if self._file is None else self._file.size()
        self.is_whole = size % self.entry.size == 0
        self._found = size // self.entry.size

    @property
    def is_there(self) -> bool:
        return self._file is not None

    @property
    def size_bytes(self) -> int:
        return 0 if self._file is None else self._file.size()

    def pieces(self) -> Iterator[bytes]:
        """What is in the file, in pieces that take no time worth mentioning to read."""
        position = 0
        while self._file is not None and (piece := self._file.read_at(position, _PIECE_BYTES)):
            position += len(piece)
            yield piece

    async def warm(self) -> None:
        """Brings the file into memory, off the loop."""
        if self._file is not None:
            await self._file.warm(0, self._file.size())

    async def flush(self) -> None:
        if self._file is not None:
            await self._file.flush()

    def flush_now(self) -> None:
        if self._file is not None:
            self._file.flush_now()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def remove(self) -> None:
        self.close()
        if self._file is not None:
            self._disk.remove(self.path)
            self._file = None

    def _head(self, count: int) -> bytes:
        """The first entries, as they stand in the file."""
        return b"" if self._file is None else self._file.read_at(0, count * self.entry.size)


class _Index(IndexFile):
    """Pairs of numbers, of which the first grows."""

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, in_memory: bool) -> None:
        super().__init__(disk, path)
        self._base_offset = base_offset
        # Made by this process, entry by entry; what was found in a file is believed only after a look at the log.
        self.is_ours = self._file is None
        self.count = self._found
        self._entries: bytearray | None = None
        self._written_bytes = self.count * self.entry.size
        if in_memory:
            self._entries = bytearray() if self._file is None else bytearray(self._file.read_at(0, self._written_bytes))

    def _raw(self, number: int) -> tuple[int, int]:
        size = self.entry.size
        if self._entries is not None:
            first, second = self.entry.unpack_from(self._entries, number * size)
        else:
            if self._file is None:
                raise IndexError(number)
            first, second = self.entry.unpack(self._file.read_at(number * size, size))
        return first, second

    def _add(self, first: int, second: int) -> None:
        if self._entries is None:
            raise ValueError(f"{self.path} is sealed")
        self._entries += self.entry.pack(first, second)
        self.count += 1

    def clear(self) -> None:
        """Starts again from nothing, in memory: a rebuild follows."""
        self.is_ours = True
        self._entries = bytearray()
        self.count = 0
        self._written_bytes = 0
        if self._file is not None:
            self._file.truncate(0)

    def write_out(self) -> None:
        """Puts what is only in memory into the file."""
        if self._entries is None:
            return
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        if len(self._entries) > self._written_bytes:
            self._file.write_at(self._written_bytes, memoryview(self._entries)[self._written_bytes :].tobytes())
            self._written_bytes = len(self._entries)

    def first_entries(self, count: int) -> bytearray:
        """For `reopen`."""
        if self._entries is not None:
            return self._entries[: count * self.entry.size]
        return bytearray(self._head(count))

    def reopen(self, entries: bytearray) -> None:
        """Goes on in memory behind these entries. The file, which holds more, goes; `write_out` makes another one."""
        self.remove()
        self._entries = entries
        self.count = len(entries) // self.entry.size
        self._written_bytes = 0

    def seal(self) -> None:
        """Writes everything out and lets go of the memory. From here on it is as believable as any file."""
        self.write_out()
        self._entries = None
        self.is_ours = False


class OffsetIndex(_Index):
    """Last offset of a batch -> position of that batch."""

    entry = Struct(">ii")

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, in_memory: bool) -> None:
        super().__init__(disk, path, base_offset, in_memory=in_memory)
        self._most: int | None = None
        """The first number of the last entry, once the file was asked for it. It only helps to guess."""

    def append(self, offset: Offset, position: int) -> None:
        self._add(offset - self._base_offset, position)

    def reopen(self, entries: bytearray) -> None:
        super().reopen(entries)
        self._most = None

    def count_before(self, position: int) -> int:
        """How many indexed batches begin before `position`."""
        return bisect_left(range(self.count), position, key=lambda n: self._raw(n)[1])

    def last(self) -> tuple[Offset, int] | None:
        if self.count == 0:
            return None
        relative, position = self._raw(self.count - 1)
        return self._base_offset + relative, position

    def floor(self, offset: Offset) -> tuple[Offset, int] | None:
        """The newest indexed batch that ends at `offset` or before: its last offset and its position."""
        return self.around(offset)[0]

    def around(self, offset: Offset) -> tuple[tuple[Offset, int] | None, int | None]:
        """As `floor`, and the position of the next batch in the index, where that costs nothing."""
        relative, size = offset - self._base_offset, self.entry.size
        entries = self._entries if self._entries is not None else self._block_around(relative)
        number = last_up_to(entries, relative)
        if number < 0:
            return None, None
        found, position = self.entry.unpack_from(entries, number * size)
        following = None
        if (number + 2) * size <= len(entries):
            _, following = self.entry.unpack_from(entries, (number + 1) * size)
        return (self._base_offset + found, position), following

    def _block_around(self, relative: int) -> Buffer:
        """Entries of the file in which the last one up to a number is, if there is one."""
        likely = self._likely_block(relative)
        return self._searched_block(relative) if likely is None else likely

    def _likely_block(self, relative: int) -> bytes | None:
        """Those around the place where the number stands if all are as far from each other; None: it is elsewhere."""
        if self._file is None or self.count == 0:
            return b""
        size = self.entry.size
        if self._most is None:
            last = self._file.read_at((self.count - 1) * size, size)
            self._most = max(self.entry.unpack(last)[0], 1) if len(last) == size else 1
        likely = relative * self.count // self._most
        first = max(min(likely - _LIKELY_ENTRIES // 2, self.count - _LIKELY_ENTRIES), 0)
        block = self._file.read_at(first * size, min(_LIKELY_ENTRIES, self.count - first) * size)
        if len(block) < size or (first > 0 and self.entry.unpack_from(block)[0] > relative):
            return None
        is_last = first + _LIKELY_ENTRIES >= self.count
        return block if is_last or self.entry.unpack_from(block, len(block) - size)[0] > relative else None

    def _searched_block(self, relative: int) -> Buffer:
        low, high = 0, self.count
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self._raw(middle)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        # With the one before `low`, which may be what is looked for.
        first, size = max(low - 1, 0), self.entry.size
        return b"" if self._file is None else self._file.read_at(first * size, (high - first) * size)

    def before_position(self, position: int) -> tuple[Offset, int] | None:
        """The newest indexed batch that begins before `position`."""
        number = self.count_before(position) - 1
        if number < 0:
            return None
        found, at = self._raw(number)
        return self._base_offset + found, at

    def offset_at_or_after(self, position: int) -> Offset | None:
        """The last offset of the first indexed batch that begins at or after `position`."""
        number = bisect_left(range(self.count), position, key=lambda n: self._raw(n)[1])
        return self._base_offset + self._raw(number)[0] if number < self.count else None


class TimeIndex(_Index):
    """Largest timestamp so far -> the offset that carries it."""

    entry = Struct(">qi")

    def maybe_append(self, timestamp_ms: int, offset: Offset) -> None:
        """Timestamps in the index only grow: an older one adds nothing."""
        if timestamp_ms >= 0 and (self.count == 0 or timestamp_ms > self._raw(self.count - 1)[0]):
            self._add(timestamp_ms, offset - self._base_offset)

    def last(self) -> tuple[int, Offset] | None:
        return self.at(self.count - 1) if self.count else None

    def at(self, number: int) -> tuple[int, Offset]:
        timestamp_ms, relative = self._raw(number)
        return timestamp_ms, self._base_offset + relative

    def count_before(self, offset: Offset) -> int:
        """How many entries are of records before `offset`."""
        return bisect_left(range(self.count), offset - self._base_offset, key=lambda n: self._raw(n)[1])

    def floor_offset(self, timestamp_ms: int) -> Offset:
        """Every batch that ends before this offset is older than `timestamp_ms`."""
        number = bisect_left(range(self.count), timestamp_ms, key=lambda n: self._raw(n)[0]) - 1
        return self._base_offset + self._raw(number)[1] if number >= 0 else self._base_offset


class AbortedTransaction(NamedTuple):
    """An aborted transaction of this partition, and how far the log was stable when its marker was written."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class AbortedIndex(IndexFile):
    """The aborted transactions whose markers stand in one segment. Rare and small: in memory while they are used, and
    written out with the other indexes."""

    entry = Struct(">hqqqq")

    def __init__(self, disk: Disk, path: str) -> None:
        super().__init__(disk, path)
        self._entries: list[AbortedTransaction] | None = None if self._file is not None else []
        self._written = self._found

    def entries(self) -> list[AbortedTransaction]:
        """Read on first use: most segments are never asked."""
        if self._entries is None:
            data = b"" if self._file is None else self._file.read_at(0, self._file.size())
            whole = len(data) - len(data) % self.entry.size
            self._entries = [AbortedTransaction(*fields[1:]) for fields in self.entry.iter_unpack(data[:whole])]
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        self.entries().append(aborted)

    def write_out(self) -> None:
        """Puts what is only in memory into the file; a segment without aborted transactions has none."""
        if self._entries is None or len(self._entries) == self._written:
            return
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        new = b"".join(self.entry.pack(0, *aborted) for aborted in self._entries[self._written :])
        self._file.write_at(self._written * self.entry.size, new)
        self._written = len(self._entries)

    def reopen(self, entries: list[AbortedTransaction]) -> None:
        """Goes on behind these entries. The file, which holds more, goes; `write_out` makes another one."""
        self.remove()
        self._entries = entries
        self._written = 0

    def clear(self) -> None:
        self._entries = []
        self._written = 0
        if self._file is not None:
            self._file.truncate(0)
