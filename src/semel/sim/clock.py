"""A simulated node's clock on the loop's virtual time. Its wall clock may be wrong, jump and drift."""

from __future__ import annotations

import asyncio
from math import floor

WALL_START_MS = 1_700_000_000_000
_ROUNDING = 1e-6  # a timer set for 5 ms must not read 4.999999


class SimClock:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, wall_start_ms: int = WALL_START_MS, drift_ppm: float = 0
    ) -> None:
        self._loop = loop
        self._wall_base_ms = float(wall_start_ms)
        self._based_at_ms = 0.0
        self._drift_ppm = drift_ppm

    def monotonic_ms(self) -> int:
        return floor(self._loop.time() * 1000 + _ROUNDING)

    def monotonic_ns(self) -> int:
        return round(self._loop.time() * 1e9)

    def wall_ms(self) -> int:
        return floor(self._wall_ms() + _ROUNDING)

    def _wall_ms(self) -> float:
        passed_ms = self._loop.time() * 1000 - self._based_at_ms
        return self._wall_base_ms + passed_ms * (1 + self._drift_ppm / 1_000_000)

    def jump_wall(self, by_ms: int) -> None:
        """Set the wall clock forwards or, with a negative number, backwards."""
        self._wall_base_ms += by_ms

    def drift(self, ppm: float) -> None:
        """From now on the wall clock gains (or loses) this many microseconds a second."""
        self._wall_base_ms, self._based_at_ms = self._wall_ms(), self._loop.time() * 1000
        self._drift_ppm = ppm
