"""The bytes that requests in memory may take in all. Who asks for more than is left waits for others to give back."""

from collections import deque
from collections.abc import Callable
from sys import maxsize

NO_LIMIT = -1
_MOST_FREE_BYTES = 1 << 20


class MemoryBudget:
    """A counter with a queue. Waiters are served in order, so a large request is not starved by small ones."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = maxsize if limit_bytes == NO_LIMIT else limit_bytes
        # So much of a request is not counted. Requests below never wait, and whoever only claims a large one, and does
        # not send this much of it, takes nothing from others.
        self.free_bytes = min(_MOST_FREE_BYTES, self.limit_bytes // 256)
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def take(self, size_bytes: int) -> bool:
        """Takes the bytes if they are there and nobody waits before us."""
        if self._waiting or self.used_bytes + size_bytes > self.limit_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def take_later(self, size_bytes: int, granted: Callable[[], None]) -> None:
        """Takes them when they are there, then calls `granted`."""
        self._waiting.append((size_bytes, granted))

    def forget(self, granted: Callable[[], None]) -> None:
        """Whoever waited with `granted` has gone."""
        self._waiting = deque(waiter for waiter in self._waiting if waiter[1] != granted)
        self._grant()

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self.used_bytes + self._waiting[0][0] <= self.limit_bytes:
            size_bytes, granted = self._waiting.popleft()
            self.used_bytes += size_bytes
            granted()
