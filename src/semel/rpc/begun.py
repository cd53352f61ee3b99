"""A coroutine that begins at once, not in a later turn of the loop, and needs a task only if it has to wait: most
requests do not. Until then it has no `current_task`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from inspect import CORO_SUSPENDED, getcoroutinestate
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """At its end, with a `result`, or at the first thing that it waits for: await it, and it goes on there."""

    result: T

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as end:
            self.result = end.value

    @property
    def is_over(self) -> bool:
        return hasattr(self, "result")

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    woken_with = yield waits_for
                except BaseException as error:
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(woken_with)
        except StopIteration as end:
            self.result = end.value
            return self.result

    def give_up(self) -> None:
        """As if the task was cancelled that awaits it, if there is none; without effect on one that is over."""
        if getcoroutinestate(self._coroutine) == CORO_SUSPENDED:
            if isinstance(self._waits_for, asyncio.Future):
                self._waits_for.cancel()
            with suppress(asyncio.CancelledError, StopIteration):
                self._coroutine.throw(asyncio.CancelledError())
            self._coroutine.close()
