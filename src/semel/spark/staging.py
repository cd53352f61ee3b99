"""Record batches between the tasks that encode them and the commit that sends them.

A task's batches are frames in one piece: inside its commit message if that is small, else in a file of its own. The
message tells length and CRC, so that what is missing or damaged is noticed before anything is committed. Nobody needs a
staged file after a crash: the batch is computed again by another run, into other files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from crc32c import crc32c
from pyarrow import fs

from semel.client.errors import BadSetting
from semel.records.kernel import unfilled
from semel.spark.object_stores import Hadoop
from semel.spark.places import Place, open_place, unreachable
from semel.spark.sink_errors import StagedDataLost

logger = logging.getLogger("semel.spark")

FOLDER = "sink-staging"
INLINE_BYTES = 512 << 10
"""What the first task may send inline; the n-th one an n-th of it: below 10 MB in all for any number of tasks."""
_MOST_INLINE_BYTES = 32 << 20
"""What a task may send inline where driver and executors share no directory. Spark bounds what all of them send to the
driver, by `spark.driver.maxResultSize`."""

_FRAME = Struct(">HBii")  # topic (its number in the message), placement, partition, bytes of the batch
_NAME = re.compile(r"(?P<run>[0-9A-Za-z-]+)-(?P<batch>\d+)-(?P<attempt>\d+)")
_LARGEST_BATCH_BYTES = 1 << 30
_WRITE_BUFFER_BYTES = 1 << 20


class Placement(IntEnum):
    """Why a batch's records are in their partition, and so what becomes of them if the topic gets more partitions."""

    PINNED = 0
    """They asked for it."""
    HASHED = 1
    """Their keys decided, by the number of partitions."""
    FREE = 2
    """Any would do."""
    MIXED = 3
    """Some asked for it, for others the key has decided."""


_PLACEMENTS = frozenset(Placement)


class StagedTopic(NamedTuple):
    name: str
    partition_count: int
    """By which its keys were placed."""
    max_batch_bytes: int
    codec: int


class Staged(NamedTuple):
    """What one task has staged. Without `file` it is all in `inline`."""

    topics: tuple[StagedTopic, ...]
    record_count: int
    size_bytes: int
    crc: int
    inline: bytes
    file: str | None = None

    @property
    def place(self) -> str:
        return "a commit message" if self.file is None else self.file


class Frame(NamedTuple):
    topic: StagedTopic
    placement: Placement
    partition: int
    batch: bytearray


def inline_limit(task_number: int, *, has_area: bool = True) -> int:
    return INLINE_BYTES // (task_number + 1) if has_area else _MOST_INLINE_BYTES


def file_name(run_id: str, batch_id: int, task_attempt_id: int) -> str:
    """Unique: attempts are numbered for as long as a run lives, and every run has an id of its own."""
    return f"{run_id}-{batch_id}-{task_attempt_id}"


class StagingWriter:
    """Takes the batches of one task. Goes on in a file once they are more than may be sent inline."""

    def __init__(self, area_uri: str | None, name: str, inline_bytes: int, hadoop: Hadoop = ()) -> None:
        """Without an area nothing but the commit message can hold the batches."""
        self._area_uri = area_uri
        self._hadoop = hadoop
        self._name = name
        self._inline_bytes = inline_bytes
        self._inline = bytearray()
        self._stream: Any = None
        self._topics: dict[StagedTopic, int] = {}
        self._records = 0
        self._size = 0
        self._crc = 0

    def add(self, topic: StagedTopic, placement: Placement, partition: int, batch: bytearray, records: int) -> None:
        number = self._topics.setdefault(topic, len(self._topics))
        head = _FRAME.pack(number, placement, partition, len(batch))
        self._records += records
        self._size += len(head) + len(batch)
        self._crc = crc32c(batch, crc32c(head, self._crc))
        if self._stream is None and self._size > self._inline_bytes:
            self._open()
        if self._stream is None:
            self._inline += head
            self._inline += batch
        else:
            self._stream.write(head)
            self._stream.write(batch)

    def _open(self) -> None:
        if self._area_uri is None:
            raise BadSetting(
                f"a task has more than the {self._inline_bytes} bytes that fit into its commit message, and there is "
                "no place for more: set stagingLocation to a directory that driver and executors share"
            )
        place = open_place(self._area_uri, self._hadoop)
        try:
            place.system.create_dir(place.path, recursive=True)
            self._stream = place.system.open_output_stream(place.child(self._name), buffer_size=_WRITE_BUFFER_BYTES)
        except OSError as error:
            raise unreachable(self._area_uri, error) from error
        self._stream.write(bytes(self._inline))
        self._inline.clear()

    def finish(self) -> Staged:
        file = None
        if self._stream is not None:
            self._stream.close()
            file = self._name
        return Staged(tuple(self._topics), self._records, self._size, self._crc, bytes(self._inline), file)

    def discard(self) -> None:
        """The task has failed: leaves nothing behind, as far as that can be done."""
        if self._stream is not None and self._area_uri is not None:
            place = open_place(self._area_uri, self._hadoop)
            try:
                self._stream.close()
                place.system.delete_file(place.child(self._name))
            except OSError as error:
                logger.warning("%s could not be removed: %s", self._name, error)


class StagingArea:
    """The directory of one query, or of one batch write."""

    def __init__(self, uri: str | None, hadoop: Hadoop = ()) -> None:
        self._uri = uri
        self._hadoop = hadoop

    def check(self, staged: Sequence[Staged]) -> None:
        """Raises StagedDataLost unless everything is there in full length. Its CRC is checked as it is read, before
        anything is committed."""
        sizes = {one.file: one.size_bytes for one in staged if one.file is not None}
        for one in staged:
            if one.file is None and len(one.inline) != one.size_bytes:
                raise StagedDataLost(f"{one.place} holds {len(one.inline)} of {one.size_bytes} bytes")
        if not sizes:
            return
        place = self._place()
        try:
            found = place.system.get_file_info([place.child(name) for name in sizes])
        except OSError as error:
            raise StagedDataLost(f"{self._uri} cannot be read: {error}") from error
        for info, (name, size_bytes) in zip(found, sizes.items(), strict=True):
            if info.type != fs.FileType.File:
                raise StagedDataLost(f"{self._uri} has no file {name}, which a task has staged")
            if info.size != size_bytes:
                raise StagedDataLost(f"{self._uri}/{name} has {info.size} bytes, but {size_bytes} were staged")

    def read(self, staged: Staged) -> Iterator[Frame]:
        """The frames in order. Raises StagedDataLost if they are not the ones that were staged, at the end at last."""
        if staged.file is None:
            yield from _checked_frames(staged, _Inline(staged.inline))
            return
        place = self._place()
        try:
            with place.system.open_input_stream(place.child(staged.file)) as stream:
                yield from _checked_frames(staged, stream)
        except OSError as error:
            raise StagedDataLost(f"{self._uri}/{staged.file} cannot be read: {error}") from error

    def remove(self, staged: Iterable[Staged]) -> None:
        """Files that nobody will ask for again. That one cannot be removed is no reason to fail."""
        names = [one.file for one in staged if one.file is not None]
        if names:
            self._remove(self._place(), names)

    def clean(self, done_batch_id: int) -> None:
        """Removes what any run, dead or alive, has staged for batches up to the one that is done: nobody may publish
        those again."""
        if self._uri is None:
            return
        place = self._place()
        try:
            entries = place.system.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
        except OSError as error:
            logger.warning("%s cannot be looked through for files to remove: %s", self._uri, error)
            return
        names = [entry.base_name for entry in entries if _is_of_batch(entry.base_name, done_batch_id)]
        self._remove(place, names)

    def remove_all(self) -> None:
        """For an area that serves one write only."""
        if self._uri is None:
            return
        place = self._place()
        try:
            place.system.delete_dir(place.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("%s could not be removed: %s", self._uri, error)

    def _remove(self, place: Place, names: Iterable[str]) -> None:
        for name in names:
            try:
                place.system.delete_file(place.child(name))
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.warning("%s/%s could not be removed: %s", self._uri, name, error)

    def _place(self) -> Place:
        if self._uri is None:
            raise StagedDataLost("files were staged, but there is no place for them")
        return open_place(self._uri, self._hadoop)


class _Inline:
    """Bytes, read as a file is."""

    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        self._position = 0

    def readinto(self, buffer: bytearray | memoryview) -> int:
        count = min(len(buffer), len(self._content) - self._position)
        memoryview(buffer)[:count] = self._content[self._position : self._position + count]
        self._position += count
        return count


def _checked_frames(staged: Staged, stream: Any) -> Iterator[Frame]:
    left, crc = staged.size_bytes, 0
    head = bytearray(_FRAME.size)
    while left > 0:
        _fill(staged, stream, head)
        number, placement, partition, size_bytes = _FRAME.unpack(head)
        left -= len(head) + size_bytes
        is_frame = 0 < size_bytes <= _LARGEST_BATCH_BYTES and number < len(staged.topics) and placement in _PLACEMENTS
        if left < 0 or not is_frame:
            raise StagedDataLost(f"{staged.place} is damaged: it is not what was staged")
        batch = unfilled(size_bytes)
        _fill(staged, stream, batch)
        crc = crc32c(batch, crc32c(head, crc))
        if left == 0 and crc != staged.crc:
            raise StagedDataLost(f"{staged.place} is damaged: its CRC is {crc:08x}, but {staged.crc:08x} was staged")
        yield Frame(staged.topics[number], Placement(placement), partition, batch)


def _fill(staged: Staged, stream: Any, buffer: bytearray) -> None:
    view, filled = memoryview(buffer), 0
    while filled < len(buffer):
        count = stream.readinto(view[filled:])
        if not count:
            raise StagedDataLost(f"{staged.place} ends too early: it is not what was staged")
        filled += count


def _is_of_batch(name: str, up_to: int) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and int(found["batch"]) <= up_to
