"""What the active controller of a cluster does by itself.

It fences the silent, gives partitions back to the first of their replicas, and finds leaders where loss is allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from semel.controller.controller import Controller
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

_UNCLEAN_INTERVAL_S = 300.0


class Upkeep:
    """Runs from `start` to `close`. What goes wrong in it ends the node by `on_broken`."""

    def __init__(self, controller: Controller, on_broken: Callable[[BaseException], None]) -> None:
        self._controller = controller
        self._on_broken = on_broken
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        controller = self._controller
        self._begin(controller.brokers.sessions.check_interval_ms / 1000, self._fence)
        self._begin(_UNCLEAN_INTERVAL_S, controller.elect_uncleanly)
        if controller.config.bool("auto.leader.rebalance.enable"):
            interval_s = controller.config.int("leader.imbalance.check.interval.seconds")
            self._begin(float(interval_s), controller.balance_leaders)

    def _fence(self) -> bool:
        self._controller.brokers.fence_silent()
        return False

    def _begin(self, interval_s: float, work: Callable[[], bool]) -> None:
        self._tasks.append(asyncio.ensure_future(self._every(interval_s, work)))

    async def _every(self, interval_s: float, work: Callable[[], bool]) -> None:
        """`work` says whether there is more of it: then it goes on after others had their turn."""
        try:
            has_more = False
            while True:
                await asyncio.sleep(0 if has_more else interval_s)
                has_more = work()
        except Refused as refusal:
            if refusal.code != ErrorCode.NOT_CONTROLLER:  # the term is over, and so is this
                self._on_broken(refusal)
        except Exception as error:
            self._on_broken(error)

    @property
    def is_over(self) -> bool:
        return all(task.done() for task in self._tasks)

    def stop(self) -> None:
        """The term is over."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
