"""Long work of coordinators, done in slices between which the loop goes on.

What takes long (a log is replayed, timers of thousands of members are set, a state of a hundred thousand entries is
dropped) is written as a generator that yields after each small step. One task of the node takes the steps of one work
after the other, so that fifty shards that begin to load at once take the loop no more often than one does.

The queue is bounded by the shards that this node has led: each is loaded and let go once a term.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator

from semel.host.api import Clock, nothing
from semel.log.log import Cold

logger = logging.getLogger("semel.coordinator")

Steps = Iterator[Cold | None]
"""Gives way after each step: with None, or with a range of a file that should be in memory before the next one."""

# A slice ends when the clock has moved on so often: after one to two milliseconds.
_SLICE_MS = 2
# And after so many steps, where the clock stands still while the program runs: in the simulated world.
_STEPS_AT_ONCE = 256
# After so many slices, what they have made is told to stay.
_SLICES_TO_KEEP = 8


class Work:
    """One generator in the queue."""

    __slots__ = ("_steps", "is_over")

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.is_over = False

    def step(self) -> Cold | None:
        """Takes one step; sets `is_over` after the last. A mistake in one work does not hold up the others."""
        try:
            return next(self._steps)
        except StopIteration:
            self.is_over = True
        except Exception:
            self.is_over = True
            logger.critical("a coordinator's work has ended with a mistake of ours", exc_info=True)
        return None

    def finish(self) -> None:
        """Takes all steps that are left, at once."""
        while not self.is_over:
            self.step()

    def cancel(self) -> None:
        """No further step; the generator hears of it by GeneratorExit."""
        self.is_over = True
        self._steps.close()  # type: ignore[attr-defined]


class WorkQueue:
    def __init__(self, clock: Clock, keep_memory: Callable[[], None] = nothing) -> None:
        """`keep_memory` is the host's."""
        self._clock = clock
        self._keep_memory = keep_memory
        self._slices = 0
        self._urgent: deque[Work] = deque()
        self._queue: deque[Work] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, steps: Steps, *, is_urgent: bool = False) -> Work:
        """Begins in a later turn of the loop. Urgent work goes before all that is not."""
        work = Work(steps)
        (self._urgent if is_urgent else self._queue).append(work)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        return work

    async def _run(self) -> None:
        try:
            while (work := self._next()) is not None:
                cold = self._slice(work)
                self._slices += 1
                if self._slices % _SLICES_TO_KEEP == 0:
                    self._keep_memory()
                if cold is None:
                    await asyncio.sleep(0)
                else:
                    await _warm(cold)
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    def _next(self) -> Work | None:
        for queue in (self._urgent, self._queue):
            while queue and queue[0].is_over:
                queue.popleft()
            if queue:
                return queue[0]
        return None

    def _slice(self, work: Work) -> Cold | None:
        monotonic_ms = self._clock.monotonic_ms
        end_ms = monotonic_ms() + _SLICE_MS
        for _ in range(_STEPS_AT_ONCE):
            cold = work.step()
            if cold is not None or work.is_over or monotonic_ms() >= end_ms:
                return cold
        return None

    async def close(self) -> None:
        """Gives up what is left, without another step."""
        for work in (*self._urgent, *self._queue):
            work.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close_if_idle(self) -> None:
        """For one of several who use it: the last one leaves nothing behind."""
        if self._next() is None:
            await self.close()


async def _warm(cold: Cold) -> None:
    """An error is met again, and judged, by who reads the range. Its segment may be gone meanwhile."""
    try:
        await cold.file.warm(cold.position, cold.length)
    except (OSError, ValueError) as error:
        logger.debug("%s could not be read ahead: %s", cold.file.path, error)
