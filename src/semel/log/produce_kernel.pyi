from collections.abc import Callable
from typing import Any

from semel.config import TopicConfig
from semel.host.api import Buffer, File

compiled: bool

class SegmentEnd:
    base_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    bytes_since_index: int
    file: File
    def write(self, batches: list[Buffer]) -> int: ...
    def note(
        self, last_offset: int, max_timestamp_ms: int, position: int, size_bytes: int, index_interval_bytes: int
    ) -> None: ...
    def is_full(
        self,
        size_bytes: int,
        last_offset: int,
        timestamp_ms: int,
        now_ms: int,
        most_bytes: int,
        most_index_bytes: int,
        most_ms: int,
    ) -> bool: ...

class LogEnd:
    start_offset: int
    end_offset: int
    high_watermark: int
    config: TopicConfig
    dirty: list[Any]
    gathered: list[Any]
    gathered_bytes: int
    def note_written(self, segment: SegmentEnd, leader_epoch: int, base_offset: int) -> None: ...

class OrdinaryBatch:
    @property
    def config(self) -> TopicConfig: ...
    def __init__(self, config: TopicConfig, is_in_transaction: Callable[[int, int], bool] | None = None) -> None: ...
    def append(self, log: LogEnd, batch: memoryview, leader_epoch: int, now_ms: int) -> int: ...

class OrdinaryProduce:
    def __init__(self, prefix: bytes, has_compact_length: bool, suffix_bytes: int, batch: OrdinaryBatch) -> None: ...
    def append(self, log: LogEnd, frame: memoryview, leader_epoch: int, now_ms: int) -> int: ...

class Reply:
    def __init__(self, form: bytes, base_at: int, start_at: int) -> None: ...
    def to(self, correlation_id: int, base_offset: int, start_offset: int) -> bytes: ...

class Gathering:
    def __init__(self, lanes: dict[bytes, Any]) -> None: ...

class Gathered:
    is_made: bool
    several: Any
    def made(self) -> bytes | None: ...
    def commits_of(self, answers: list[Any]) -> list[Any]: ...
    def answer_or_longer_way(self) -> bytes | None: ...

class QuickLane:
    def __init__(
        self,
        gathering: Gathering,
        ordinary: OrdinaryProduce,
        reply: Reply,
        partition: object,
        may_write: Callable[[str], bool] | None,
        waits: bool,
    ) -> None: ...
    def gather(self, connection: object, buffer: memoryview, start: int, count: int) -> Gathered | None: ...
