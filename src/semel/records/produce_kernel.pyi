from typing import TypeAlias

compiled: bool

# batch, correlation id, last offset delta, greatest timestamp, producer id, the producer's row after it
JudgedProduce: TypeAlias = tuple[memoryview, int, int, int, int, bytes | None]

class OrdinaryProduce:
    def __init__(
        self,
        prefix: bytes,
        has_compact_length: bool,
        suffix_bytes: int,
        max_batch_bytes: int,
        before_ms: int,
        after_ms: int,
        needs_keys: bool,
    ) -> None: ...
    def read(
        self, frame: memoryview, rows: dict[int, bytes], base_offset: int, now_ms: int
    ) -> JudgedProduce | None: ...
