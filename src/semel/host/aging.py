"""What time it is for those who forget what is old, by time stamps of a wall clock that may jump."""

from __future__ import annotations

from collections import deque

from semel.host.api import Clock

# Less than that is how clocks drift and are rounded.
_LEAST_LEAP_MS = 1000


class AgingClock:
    """Holds what the wall clock has leapt over against it, until all that was stamped before is old anyway.

    A wall clock that is set forward by ten days must not make everything ten days older. What was stamped before the
    leap is judged as if it had not happened; once `memory_ms` have passed since, nothing of that is left, and what was
    stamped later is right again. Nothing is found old too early, and after a leap some of it late. When the clock is
    set back nothing is done: what was stamped before stays longer.

    One for each kind of thing, with one `memory_ms`: a leap is noticed by comparing two calls.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = clock.wall_ms() - clock.monotonic_ms()
        # When a leap was noticed, and how far it went.
        self._leaps: deque[tuple[int, int]] = deque()

    def now_ms(self, memory_ms: int) -> int:
        """The wall time to hold stamps against, for what is forgotten when it is `memory_ms` old."""
        wall_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        leap_ms = wall_ms - monotonic_ms - self._ahead_ms
        self._ahead_ms += leap_ms
        if leap_ms >= _LEAST_LEAP_MS:
            self._leaps.append((monotonic_ms, leap_ms))
        while self._leaps and monotonic_ms - self._leaps[0][0] >= memory_ms:
            self._leaps.popleft()
        return wall_ms - sum(by_ms for _, by_ms in self._leaps)
