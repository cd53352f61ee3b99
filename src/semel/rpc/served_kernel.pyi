from collections.abc import Callable
from typing import Any

from semel.host.api import LaterReply, Link

compiled: bool

class SharedBuffer:
    buffer: memoryview
    start: int
    def __init__(self, size_bytes: int) -> None: ...
    def free(self) -> memoryview: ...
    def keep(self, answer: LaterReply, count: int) -> None: ...
    def settle(self) -> None: ...
    def move_to_front(self, start: int, count: int) -> None: ...

class Several:
    is_made: bool
    def __init__(self, connection: Any, answers: list[Any]) -> None: ...
    def made(self) -> bytes | None: ...
    def send_in_turn(self) -> None: ...

class Receiving:
    link: Link
    lane: Callable[[Any, memoryview, int, int], LaterReply | None] | None
    principal: str
    was_active: bool
    _shared: SharedBuffer
    _frame: memoryview | None
    _held: bytearray
    _outstanding: Any
    _most_bytes: int
    def get_buffer(self) -> memoryview: ...
    def received(self, count: int) -> bytes | LaterReply | None: ...
