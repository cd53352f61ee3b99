from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from semel.host.api import Buffer

_R = TypeVar("_R")

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
def encode_one(
    value: bytes | None,
    key: bytes | None,
    timestamp: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int,
    leader_epoch: int,
) -> bytearray: ...
def walk_records(
    data: Buffer, start: int, count: int, last_offset_delta: int, holes: bool, base_timestamp: int
) -> tuple[int, int, int]: ...
def find_refused(
    data: Buffer,
    start: int,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    needs_keys: bool,
    earliest: int,
    latest: int,
    limit: int,
) -> tuple[list[tuple[int, int | None]], int, int]: ...
def count_whole(data: Buffer, start: int, count: int, last_offset_delta: int) -> int: ...
def read_records(
    data: Buffer,
    start: int,
    count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    make: Callable[[tuple[object, ...]], _R],
) -> list[_R]: ...
def read_messages(
    data: Buffer,
    start: int,
    count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    topic: str,
    partition: int,
    first_offset: int,
    make: type[_R] | Callable[[tuple[object, ...]], _R],
) -> list[_R]: ...
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

# rows, nulls, validity, offsets, data, bytes of data
BinaryBuffers = tuple[int, int, Any | None, Any, Any, int]

@final
class ColumnReader:
    def __init__(
        self,
        with_headers: bool,
        timestamp_factor: int,
        allocate: Callable[[int], Any],
        expected_count: int,
        expected_bytes: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    def add(
        self,
        data: Buffer,
        start: int,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None,
        first_offset: int,
        end_offset: int,
        max_records: int,
    ) -> int: ...
    def finish(
        self,
    ) -> tuple[Any, Any, Any, BinaryBuffers, BinaryBuffers, Any | None, BinaryBuffers, BinaryBuffers]: ...
