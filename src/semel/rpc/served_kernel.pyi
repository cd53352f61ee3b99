from collections.abc import Callable
from typing import Any

from semel.host.api import Link

compiled: bool

class Receiving:
    link: Link
    lane: Callable[[str, memoryview, int], bytes | None] | None
    principal: str
    was_active: bool
    _buffer: memoryview
    _frame: memoryview | None
    _held: bytearray
    _outstanding: Any
    _most_bytes: int
    def get_buffer(self) -> memoryview: ...
    def received(self, count: int) -> bytes | None: ...
