"""Answers that are shared: many pages that look at the same thing cost one question, and a dear one is asked seldom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

V = TypeVar("V")
_SHARE = 8
"""An answer that took a second is good for at least so many seconds."""


class Cached(Generic[V]):
    """What `ask` answers, at most `good_for_s` old; concurrent callers wait for the same question."""

    def __init__(self, ask: Callable[[], Awaitable[V]], good_for_s: float) -> None:
        self._ask = ask
        self._good_for_s = good_for_s
        self._value: V | None = None
        self._until_s = float("-inf")
        self._asking: asyncio.Task[V] | None = None

    async def get(self) -> V:
        if self._value is not None and time.monotonic() < self._until_s:
            return self._value
        if self._asking is None:
            self._asking = asyncio.create_task(self._fill())
            self._asking.add_done_callback(self._is_done)
        # Who goes away leaves the question to the others.
        return await asyncio.shield(self._asking)

    def forget(self) -> None:
        """After a change: the next caller asks anew."""
        self._until_s = float("-inf")

    async def _fill(self) -> V:
        began_s = time.monotonic()
        value = self._value = await self._ask()
        now_s = time.monotonic()
        self._until_s = now_s + max(self._good_for_s, _SHARE * (now_s - began_s))
        return value

    def _is_done(self, task: asyncio.Task[V]) -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # whoever waits has it, too

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
