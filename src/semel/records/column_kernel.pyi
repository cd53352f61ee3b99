from typing import final

from semel.host.api import Buffer

compiled: bool

@final
class NumberColumn:
    def __init__(self, numbers: memoryview, validity: memoryview | None, first: int, count: int) -> None: ...

@final
class BinaryColumn:
    def __init__(self, offsets: memoryview, data: Buffer, validity: Buffer | None, first: int, count: int) -> None: ...

@final
class HeaderColumn:
    def __init__(
        self,
        offsets: memoryview,
        keys: BinaryColumn,
        values: BinaryColumn,
        validity: Buffer | None,
        first: int,
        count: int,
    ) -> None: ...

@final
class RecordColumns:
    def __init__(
        self,
        first_row: int,
        values: BinaryColumn,
        keys: BinaryColumn | None,
        headers: HeaderColumn | None,
        timestamps: NumberColumn | None,
        timestamp_factor: int,
        timestamp_divisor: int,
    ) -> None: ...

@final
class RecordEncoder:
    def __init__(self, batch_bytes: int, reserved_bytes: int, expected_bytes: int, default_timestamp: int) -> None: ...
    def add(self, columns: RecordColumns, rows: memoryview | None, position: int) -> int: ...
    def take(self) -> tuple[bytearray, int, int, int]: ...

def largest_record(columns: RecordColumns, rows: memoryview | None, position: int) -> tuple[int, int, int]: ...
def murmur2(data: bytes) -> int: ...
def assign_partitions(
    count: int,
    numbers: NumberColumn | None,
    keys: BinaryColumn | None,
    partition_count: int,
    fallback: int,
    assigned: memoryview,
    position: int,
) -> int: ...
def sort_by_partition(assigned: memoryview, ends: memoryview, rows: memoryview) -> None: ...
