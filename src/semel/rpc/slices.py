"""Long requests are worked off in slices, and others are served between them.

All long requests of a node share one slice in each turn of the loop. Whoever works through many items asks `step` for
each of them, and waits for `next` when that says that the slice is over: then all that is ready is served first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from semel.host.api import Clock

T = TypeVar("T")

# A slice ends at the first item after so long: at most a millisecond later, for the clock counts whole ones.
_SLICE_MS = 4
# And after so many items, so that requests overtake each other also where computing takes no time, as in the simulator.
_STEPS = 2000


class Slices:
    """Nothing is asked of the clock, and nothing waits, before the first item of a turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_ms = 0
        self._steps_left = 0
        self._has_begun = False  # in this turn of the loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_ticking = False

    def step(self) -> bool:
        """Counts an item. Whether the slice is over: the next item is for after `next`.

        The first item in a turn costs a turn of the loop, so most requests of one item should not come here: count
        before each item but the first."""
        if not self._has_begun:
            self._begin()
        self._steps_left -= 1
        return self._steps_left <= 0 or self._clock.monotonic_ms() >= self._end_ms

    async def next(self) -> None:
        """Returns when others have had their turn, and all who waited before."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._tick_soon()
        await turn
        self._begin()

    async def each(self, items: Iterable[object]) -> None:
        """Walks through something that works while it is walked through."""
        for _ in items:
            if self.step():
                await self.next()

    def _begin(self) -> None:
        self._end_ms = self._clock.monotonic_ms() + _SLICE_MS
        self._steps_left = _STEPS
        if not self._has_begun:
            self._has_begun = True
            asyncio.get_running_loop().call_soon(self._turn_over)

    def _turn_over(self) -> None:
        self._has_begun = False

    def _tick_soon(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        """One of those that wait goes on."""
        self._is_ticking = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._tick_soon()
