from collections.abc import Callable

from semel.host.api import LaterReply
from semel.host.real_link import RealLink

class Reader:
    def __init__(
        self,
        link: RealLink,
        fd: int,
        get_buffer: Callable[[], memoryview],
        received: Callable[[int], bytes | LaterReply | None],
    ) -> None: ...
    def take_reply(self) -> bytes | None: ...
    def may_reply(self) -> None: ...
    def end(self) -> None: ...

class RangeSender:
    head_sent: int
    sent: int
    tail_sent: int
    def __init__(
        self, fd: int, head: bytes, file_fd: int, position: int, length: int, tail: bytes, most: int
    ) -> None: ...
    def begin(self) -> bool: ...
    def end(self) -> None: ...

def serve_round(
    epoll_fd: int, readers: dict[int, Reader], senders: dict[int, RangeSender], serve: Callable[[int, int], None]
) -> bool: ...
