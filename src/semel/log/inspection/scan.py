"""Reads the batches of a segment one after the other, in pieces of bounded size, and goes on behind a bad one.

A bad batch ends what a node can read for certain; somebody who looks for all that is wrong wants to see what comes
after it. The next batch is where the header says, if one is there; otherwise the first place where a batch's CRC fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from semel.log.batch_search import BLOCK_BYTES, LARGEST_IN_MEMORY_BYTES, ReadableFile, next_whole_batch
from semel.records.batch import CRC_START, HEADER_BYTES, LENGTH_FIELD_END, BatchHeader, read_header
from semel.records.control import ControlMarker, read_control
from semel.records.errors import RecordError

_CONTROL_BYTES = 64 << 10


class Scanned(NamedTuple):
    """A batch, or a place where one should be. `header` is None when there is none to be read, `batch` when the bytes
    are bad or too many; `end` is where the next batch begins."""

    position: int
    end: int
    header: BatchHeader | None
    batch: memoryview | None
    problem: str | None = None


def scan(file: ReadableFile, size_bytes: int, position: int = 0) -> Iterator[Scanned]:
    """Every batch from `position` on, CRC checked, up to `size_bytes`."""
    while position < size_bytes:
        block = memoryview(file.read_at(position, min(BLOCK_BYTES, size_bytes - position)))
        if not block:
            return  # cut by somebody meanwhile
        at = 0
        while at < len(block):
            try:
                header = read_header(block, at)
            except RecordError as error:
                if at and len(block) - at < HEADER_BYTES and position + len(block) < size_bytes:
                    break
                bad = _bad(file, size_bytes, position + at, None, str(error))
                yield bad
                at = bad.end - position
                break
            size = header.batch_length + LENGTH_FIELD_END
            end = at + size
            if end > len(block):
                if position + end <= size_bytes and at:
                    break
                scanned = _large(file, size_bytes, position + at, header)
            elif crc32c(block[at + CRC_START : end]) != header.crc:
                scanned = _bad(file, size_bytes, position + at, header, "its CRC-32C does not match")
            else:
                scanned = Scanned(position + at, position + end, header, block[at:end])
            yield scanned
            at = scanned.end - position
        position += at


def _large(file: ReadableFile, size_bytes: int, position: int, header: BatchHeader) -> Scanned:
    """A batch that is larger than a block, or than what is left of the file."""
    end = position + header.size_bytes
    if end > size_bytes:
        return _bad(
            file, size_bytes, position, header, f"it has {header.size_bytes} bytes, but the file ends before it does"
        )
    if header.size_bytes <= LARGEST_IN_MEMORY_BYTES:
        batch = memoryview(file.read_at(position, header.size_bytes))
        if crc32c(batch[CRC_START:]) == header.crc:
            return Scanned(position, end, header, batch)
    else:
        crc, at = 0, position + CRC_START
        while at < end:
            piece = file.read_at(at, min(BLOCK_BYTES, end - at))
            crc = crc32c(piece, crc)
            at += len(piece) or end
        if crc == header.crc:
            return Scanned(position, end, header, None)
    return _bad(file, size_bytes, position, header, "its CRC-32C does not match")


def _bad(file: ReadableFile, size_bytes: int, position: int, header: BatchHeader | None, problem: str) -> Scanned:
    if header is not None and _follows(file, position + header.size_bytes, header):
        return Scanned(position, position + header.size_bytes, header, None, problem)
    following = next_whole_batch(file, size_bytes, position + 1)
    if header is not None and position + header.size_bytes == following == size_bytes:
        return Scanned(position, following, header, None, problem)
    return Scanned(position, following, None, None, problem)


def _follows(file: ReadableFile, position: int, header: BatchHeader) -> bool:
    """Whether the batch at `position` can be the one after `header`'s: then that header says the truth of its size."""
    try:
        return read_header(file.read_at(position, HEADER_BYTES)).base_offset == header.next_offset
    except RecordError:
        return False


def headers(file: ReadableFile, size_bytes: int, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch, without reading what is in them; ends at the first that is none."""
    while size_bytes - position >= HEADER_BYTES:
        block = file.read_at(position, min(8192, size_bytes - position))
        at = 0
        while at + HEADER_BYTES <= len(block):
            try:
                header = read_header(block, at)
            except RecordError:
                return
            if position + at + header.size_bytes > size_bytes:
                return
            yield position + at, header
            at += header.size_bytes
        if not at:
            return
        position += at


def marker_of(header: BatchHeader, batch: memoryview | bytes | None) -> ControlMarker | None:
    """The end of a transaction that a control batch tells; None for any other kind of control batch."""
    if not header.is_control or batch is None:
        return None
    try:
        return read_control(batch, header)
    except RecordError:
        return None


def marker_at(file: ReadableFile, position: int, header: BatchHeader) -> ControlMarker | None:
    if not header.is_control or header.size_bytes > _CONTROL_BYTES:
        return None
    return marker_of(header, file.read_at(position, header.size_bytes))
