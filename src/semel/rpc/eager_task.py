"""A coroutine that begins at once, not in a later turn of the loop, and needs a task only if it has to wait: most
requests do not. Until then it has no `current_task`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from contextlib import suppress
from inspect import CORO_SUSPENDED, getcoroutinestate
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class EagerTask(Generic[T]):
    """At its end, with a `result`, or at the first thing that it waits for: awaited, or `in_task`, it goes on there."""

    is_over = False
    result: T

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as end:
            self.result = end.value
            self.is_over = True
        else:
            self._mark_awaited(False)

    def in_task(self) -> asyncio.Future[T]:
        return self.in_task_of(self)

    def in_task_of(self, waiting: Awaitable[R]) -> asyncio.Future[R]:
        """In the task of what waits for it."""
        task = asyncio.ensure_future(waiting)
        task.add_done_callback(lambda _: self._give_up())  # the task never began, if it was cancelled at once
        return task

    def __await__(self) -> Generator[Any, Any, T]:
        if self.is_over:
            return self.result
        waits_for = self._waits_for
        self._mark_awaited(True)
        try:
            while True:
                try:
                    woken_with = yield waits_for
                except BaseException as error:
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(woken_with)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _mark_awaited(self, is_awaited: bool) -> None:
        """A future that is awaited says so, until a task has taken it: only one at a time can wait to be taken."""
        if asyncio.isfuture(self._waits_for):
            self._waits_for._asyncio_future_blocking = is_awaited

    def _give_up(self) -> None:
        """As if the task was cancelled that awaits it, if there is none; without effect on one that is over."""
        if getcoroutinestate(self._coroutine) == CORO_SUSPENDED:
            if isinstance(self._waits_for, asyncio.Future):
                self._waits_for.add_done_callback(_hear)
                self._waits_for.cancel()
            with suppress(asyncio.CancelledError, StopIteration):
                self._coroutine.throw(asyncio.CancelledError())
            self._coroutine.close()


def _hear(future: asyncio.Future[Any]) -> None:
    """What was given up may end with an error all the same, as `gather` does, which nobody else will hear of."""
    if not future.cancelled():
        future.exception()
