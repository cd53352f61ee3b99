"""The task that keeps a member in its group: beats when it is due, and watches that the program does its part.

A program that stays away from poll for longer than max.poll.interval.ms is stuck, or as good as: its partitions are
needed by others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from semel.client.consumer.membership.poll_clock import PollClock


class Keeper:
    def __init__(
        self,
        clock: PollClock,
        *,
        beat: Callable[[], Awaitable[float]],
        has_place: Callable[[], bool],
        is_away: Callable[[], Awaitable[None]],
        broken: Callable[[Exception], None],
    ) -> None:
        """`beat` does what is due and says in how many seconds it is due again, if at all. `is_away` is called once
        the program has been away for too long, if `has_place` says that others wait for it; afterwards it must not."""
        self._clock = clock
        self._beat = beat
        self._has_place = has_place
        self._is_away = is_away
        self._broken = broken
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Does nothing if it runs already."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def beat_now(self) -> None:
        self._woken.set()

    async def stop(self) -> None:
        """Does not wait when it is called from inside."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            if task is not asyncio.current_task():
                await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        due_s = self._now_s()
        try:
            while True:
                await self._sleep(due_s)
                if self._has_place() and self._clock.left_s() <= 0:
                    await self._is_away()
                else:
                    due_s = self._now_s() + await self._beat()
        except Exception as error:
            self._broken(error)

    async def _sleep(self, due_s: float) -> None:
        left_s = self._clock.left_s() if self._has_place() else float("inf")
        until_s = min(due_s, self._now_s() + left_s)
        try:
            async with asyncio.timeout_at(until_s if until_s < float("inf") else None):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
