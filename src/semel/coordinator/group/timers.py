"""Named deadlines on the running loop. Moving a deadline further away, as every heartbeat does, costs no timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator

from semel.coordinator.shard import RECORDS_AT_ONCE


class _Timer:
    __slots__ = ("act", "deadline_s", "handle")

    def __init__(self, act: Callable[[], None], deadline_s: float, handle: asyncio.TimerHandle) -> None:
        self.act = act
        self.deadline_s = deadline_s
        self.handle = handle


class Timers:
    """At most one deadline a name; whoever owns this closes it."""

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._is_stopped = False

    def set(self, name: Hashable, after_ms: int, act: Callable[[], None]) -> None:
        """Calls `act` after that time, instead of whatever was set under this name before."""
        if self._is_stopped:
            return
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + after_ms / 1000
        timer = self._timers.get(name)
        if timer is not None:
            if timer.handle.when() <= deadline_s:
                timer.act, timer.deadline_s = act, deadline_s
                return
            timer.handle.cancel()
        self._timers[name] = _Timer(act, deadline_s, loop.call_at(deadline_s, self._due, name))

    def _due(self, name: Hashable) -> None:
        timer = self._timers.get(name)
        if timer is None or self._is_stopped:
            return
        loop = asyncio.get_running_loop()
        if timer.deadline_s > loop.time():
            timer.handle = loop.call_at(timer.deadline_s, self._due, name)
            return
        del self._timers[name]
        timer.act()

    def cancel(self, name: Hashable) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None and not self._is_stopped:
            timer.handle.cancel()

    def __contains__(self, name: Hashable) -> bool:
        return name in self._timers

    def close(self) -> Iterator[None]:
        """Nothing happens any more at any deadline. The steps that it returns forget them all.

        The loop keeps its own entries until they are due, and finds nothing there: if thousands of them were cancelled,
        it would sort its timers anew, and be held by that."""
        self._is_stopped = True
        return self._forgotten()

    def _forgotten(self) -> Iterator[None]:
        while self._timers:
            for _ in range(min(RECORDS_AT_ONCE, len(self._timers))):
                self._timers.popitem()
            yield
