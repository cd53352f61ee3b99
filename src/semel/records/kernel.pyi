from collections.abc import Callable, Sequence
from typing import TypeVar

Buffer = bytes | bytearray | memoryview
R = TypeVar("R")

compiled: bool

def unfilled(size: int) -> bytearray: ...
def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes: ...
def encode_records(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    header_blocks: list[bytes] | None,
    timestamps: list[int] | None,
    base_timestamp: int,
    reserved_bytes: int,
) -> tuple[bytearray, int]: ...
def walk_records(
    data: Buffer, start: int, count: int, last_offset_delta: int, holes: bool, base_timestamp: int
) -> tuple[int, int, int]: ...
def read_records(
    data: Buffer,
    start: int,
    count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    make: Callable[[tuple[object, ...]], R],
) -> list[R]: ...
def read_values(data: Buffer, start: int, count: int, last_offset_delta: int) -> list[bytes | None]: ...
def read_keys(
    data: Buffer,
    start: int,
    count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
) -> list[tuple[int, bytes | None, bool, int]]: ...
def copy_records(
    data: Buffer,
    start: int,
    count: int,
    last_offset_delta: int,
    keep: bytes | bytearray,
    base_timestamp: int,
    new_base_timestamp: int,
    reserved_bytes: int,
) -> tuple[bytearray, int, int, int]: ...
