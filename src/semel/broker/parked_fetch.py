"""A fetch that waits for more: woken by its partitions or by its time, never by polling, and without a task.

It is tried again in a callback of the loop, right after the round that woke it: never from inside an append, whose
writer is not done yet, and once, however many partitions called. What it gives then is sent in that same callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from semel.broker.router import Parked
from semel.log.log import Cold
from semel.wire.schema import Response


class Retriable(Protocol):
    """A fetch that can be tried as often as need be. What a try has found is pinned until it is given or released."""

    cold: list[Cold]

    @property
    def is_complete(self) -> bool: ...

    def read(self, *, warmed: bool = False) -> None: ...

    def wait(self, waiter: object, wake: Callable[[], None]) -> None: ...

    def leave(self, waiter: object) -> None: ...

    def release(self) -> None: ...

    def response(self) -> Response: ...


class ParkedFetch(Parked):
    """Between a first try that found too little, or only what is cold, and the answer."""

    def __init__(self, fetch: Retriable, wait_ms: int) -> None:
        """Right after that try, and begun with no await in between: so nothing that comes is missed."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._fetch = fetch
        self._is_woken = False
        self._is_over = False
        self._is_due = False
        self._warming: asyncio.Task[None] | None = None
        self._timer = loop.call_later(wait_ms / 1000, self._time_is_up)

    def begin(self, answer: Callable[[Response], None], fail: Callable[[Exception], None]) -> None:
        self._answer = answer
        self._fail = fail
        self._judge()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._try)

    def _time_is_up(self) -> None:
        self._is_due = True
        self._try()

    def _try(self) -> None:
        self._is_woken = False
        if self._is_over or self._warming is not None:  # who warms tries again afterwards
            return
        try:
            self._fetch.read()
            self._judge()
        except Exception as error:
            self._failed(error)

    def _judge(self) -> None:
        """What the last try has found is enough, or has to be warmed, or is given back until there is more."""
        fetch = self._fetch
        if fetch.cold:
            self._warming = self._loop.create_task(self._warm(fetch.cold))
        elif fetch.is_complete or self._is_due:
            self._end()
            self._answer(fetch.response())
            del self._answer, self._fail  # they know of this one in turn: nobody should have to look for such a ring
        else:
            fetch.release()
            fetch.wait(self, self._wake)

    async def _warm(self, cold: list[Cold]) -> None:
        try:
            await asyncio.gather(*(one.file.warm(one.position, one.length) for one in cold))
            self._warming = None
            self._fetch.read(warmed=True)
            self._judge()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._warming = None
        self.leave()
        self._fail(error)

    def leave(self) -> None:
        if not self._is_over:
            self._end()
            self._fetch.release()

    def _end(self) -> None:
        self._is_over = True
        self._timer.cancel()
        if self._warming is not None:
            self._warming.cancel()
        self._fetch.leave(self)
