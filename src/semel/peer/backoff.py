"""Pauses before the next attempt: each twice as long as the last, up to a limit, with jitter so that many callers that
failed together do not come back together. And whether there is time for another attempt."""

from __future__ import annotations

import asyncio
import random as random_module

_JITTER = 0.2


class Backoff:
    def __init__(self, random: random_module.Random, first_ms: int, most_ms: int) -> None:
        self._random = random
        self._first_ms = first_ms
        self._most_ms = max(first_ms, most_ms)

    def delay_s(self, failures: int) -> float:
        """The pause after so many failures in a row; none after none."""
        if failures <= 0:
            return 0.0
        delay_ms: int = min(self._first_ms * 2 ** min(failures - 1, 30), self._most_ms)
        return delay_ms * self._random.uniform(1 - _JITTER, 1 + _JITTER) / 1000


class Attempts:
    """Attempts at one thing until a deadline, which is a time of the running loop."""

    def __init__(self, backoff: Backoff, deadline_s: float) -> None:
        self.failures = 0
        self._backoff = backoff
        self._deadline_s = deadline_s

    def pause_s(self) -> float | None:
        """Counts a failure. Returns the pause before the next attempt, or None if it would not begin in time."""
        self.failures += 1
        pause_s = self._backoff.delay_s(self.failures)
        return None if asyncio.get_running_loop().time() + pause_s >= self._deadline_s else pause_s
