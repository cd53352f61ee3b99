"""Runs the Owner's callbacks, one at a time and each to its end.

A poll that runs out of time while a callback runs is over when the callback is: half a callback would be neither done
nor to be done again. Only who cancels twice gets away; then the callback goes on by itself, and the next who comes
waits for it first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from semel.client.consumer.membership.api import Partitions
from semel.client.consumer.membership.poll_clock import PollClock
from semel.client.errors import IllegalState


class Callbacks:
    def __init__(self, clock: PollClock) -> None:
        self._clock = clock
        self._running: asyncio.Task[None] | None = None
        self._unraised: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing runs, and nobody is still to be told of an error."""
        return self._running is None and self._unraised is None

    def check_outside(self) -> None:
        """Raises IllegalState inside a callback, which would wait for itself."""
        if self._running is not None and self._running is asyncio.current_task():
            raise IllegalState("a rebalance listener cannot poll, unsubscribe or close: return from it first")

    async def run(self, callback: Callable[[Partitions], Awaitable[None]], partitions: Partitions) -> None:
        """Raises what the callback raises."""
        self._running = asyncio.get_running_loop().create_task(self._timed(callback, partitions))
        await self.finish()

    async def finish(self) -> None:
        """Returns when no callback runs. Raises what one raised that nobody has been told of."""
        self.check_outside()
        task = self._running
        if task is not None:
            cancelled: asyncio.CancelledError | None = None
            while not task.done():
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError as error:
                    if cancelled is not None:
                        raise
                    cancelled = error
            if self._running is task:
                self._running = None
                self._unraised = asyncio.CancelledError() if task.cancelled() else task.exception()
            if cancelled is not None:
                raise cancelled
        unraised, self._unraised = self._unraised, None
        if unraised is not None:
            raise unraised

    async def _timed(self, callback: Callable[[Partitions], Awaitable[None]], partitions: Partitions) -> None:
        self._clock.callback_began()
        try:
            await callback(partitions)
        finally:
            self._clock.callback_ended()

    async def close(self) -> None:
        task, self._running = self._running, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
