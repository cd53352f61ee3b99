"""Pauses before the next attempt: each twice as long as the last, up to a limit, with jitter so that many clients that
failed together do not come back together."""

from __future__ import annotations

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
