"""Wakes whoever waits for something to happen; who is woken looks for itself whether it was that."""

from __future__ import annotations

import asyncio


class Wakeup:
    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Whoever waits goes on."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, deadline_s: float | None) -> None:
        """Returns at the next `wake`, or at the deadline."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        timer = None if deadline_s is None else loop.call_at(deadline_s, self._give_up, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._give_up(waiter)

    def _give_up(self, waiter: asyncio.Future[None]) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        if not waiter.done():
            waiter.set_result(None)
