"""Looks for the next batch behind damage, where no header says where it begins: by magic, length and CRC."""

from __future__ import annotations

from typing import Protocol

from crc32c import crc32c

from semel.records.batch import CRC_START, HEADER_BYTES, MAGIC, read_header
from semel.records.errors import RecordError

BLOCK_BYTES = 4 << 20
# Larger ones are checked piece by piece and not handed out: a damaged length may claim all of the file.
LARGEST_IN_MEMORY_BYTES = 16 << 20
_MAGIC_AT = 16
_MAGIC_BYTE = bytes([MAGIC])


class ReadableFile(Protocol):
    path: str

    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes: ...

    def close(self) -> None: ...


def next_whole_batch(file: ReadableFile, size_bytes: int, position: int) -> int:
    """Where the next batch with a right CRC begins; the end of the file when there is none."""
    while position < size_bytes:
        block = file.read_at(position, min(BLOCK_BYTES, size_bytes - position))
        if len(block) < HEADER_BYTES:
            return size_bytes
        last = len(block) - HEADER_BYTES
        at = block.find(_MAGIC_BYTE, _MAGIC_AT)
        while at >= 0 and at - _MAGIC_AT <= last:
            if _is_batch(file, size_bytes, position + at - _MAGIC_AT, block, at - _MAGIC_AT):
                return position + at - _MAGIC_AT
            at = block.find(_MAGIC_BYTE, at + 1)
        position += last + 1
    return size_bytes


def _is_batch(file: ReadableFile, size_bytes: int, position: int, block: bytes, at: int) -> bool:
    try:
        header = read_header(block, at)
    except RecordError:
        return False
    if header.base_offset < 0 or header.attributes >> 7 or position + header.size_bytes > size_bytes:
        return False
    if header.size_bytes > LARGEST_IN_MEMORY_BYTES:
        return False
    if at + header.size_bytes <= len(block):
        return crc32c(memoryview(block)[at + CRC_START : at + header.size_bytes]) == header.crc
    return crc32c(memoryview(file.read_at(position, header.size_bytes))[CRC_START:]) == header.crc
