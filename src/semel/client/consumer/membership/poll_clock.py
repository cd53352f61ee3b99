"""How long the program has been away: max.poll.interval.ms.

The clock stands while the program waits inside poll, and starts at zero when it leaves poll or when a callback of its
own is called: both are its work, and it may be stuck in either.
"""

from __future__ import annotations

import asyncio


class PollClock:
    def __init__(self, limit_ms: int) -> None:
        self.limit_ms = limit_ms
        self._is_inside = True
        self._in_callback = False
        self._away_since_s: float | None = None

    def polled(self) -> None:
        self._is_inside = True
        self._restart()

    def returned(self) -> None:
        self._is_inside = False
        self._restart()

    def callback_began(self) -> None:
        self._in_callback = True
        self._restart()

    def callback_ended(self) -> None:
        self._in_callback = False
        self._restart()

    def _restart(self) -> None:
        counts = self._in_callback or not self._is_inside
        self._away_since_s = asyncio.get_running_loop().time() if counts else None

    def left_s(self) -> float:
        """Until the limit is reached; infinite while the clock stands."""
        if self._away_since_s is None:
            return float("inf")
        return self._away_since_s + self.limit_ms / 1000 - asyncio.get_running_loop().time()
