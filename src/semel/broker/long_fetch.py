"""A fetch that has many partitions to look at: read in slices, tried again like one that is parked.

Others are served between the slices, and may write into a partition that was found empty in an earlier one: so each
partition is watched from the slice on that has read it, and a try that was woken while it ran is followed by another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import Protocol, cast

from semel.broker.fetch_sessions import Key
from semel.log.log import Cold
from semel.rpc.slices import Slices
from semel.wire.spec.fetch import FetchResponse


class SlicedFetch(Protocol):
    """A fetch that can be tried as often as need be. What a try has found is pinned until it is given or released."""

    cold: list[Cold]

    @property
    def is_complete(self) -> bool: ...

    def reading(self, *, warmed: bool = False) -> Iterator[Key]: ...

    def watch(self, key: Key) -> None: ...

    def call(self, waiter: object, wake: Callable[[], None]) -> None: ...

    def leave(self, waiter: object) -> None: ...

    def release(self) -> None: ...

    def telling(self) -> Generator[None, None, FetchResponse]: ...


class LongFetch:
    """From the first try to the answer, in a task of its own."""

    def __init__(self, fetch: SlicedFetch, wait_ms: int, slices: Slices) -> None:
        self._fetch = fetch
        self._slices = slices
        self._wait_s = wait_ms / 1000
        self._news = asyncio.Event()
        self._is_due = False

    async def response(self) -> FetchResponse:
        fetch = self._fetch
        timer = asyncio.get_running_loop().call_later(max(self._wait_s, 0), self._time_is_up)
        fetch.call(self, self._news.set)
        try:
            while True:
                self._news.clear()
                await self._read()
                if fetch.is_complete or self._is_due:
                    return await self._told()
                fetch.release()
                await self._news.wait()
        except BaseException:
            fetch.release()
            raise
        finally:
            timer.cancel()
            fetch.leave(self)

    def _time_is_up(self) -> None:
        self._is_due = True
        self._news.set()

    async def _told(self) -> FetchResponse:
        telling = self._fetch.telling()
        while True:
            try:
                next(telling)
            except StopIteration as end:
                return cast(FetchResponse, end.value)
            if self._slices.step():
                await self._slices.next()

    async def _read(self) -> None:
        await self._try(warmed=False)
        if self._fetch.cold:
            cold = self._fetch.cold
            await asyncio.gather(*(one.file.warm(one.position, one.length) for one in cold))
            await self._try(warmed=True)

    async def _try(self, *, warmed: bool) -> None:
        for key in self._fetch.reading(warmed=warmed):
            self._fetch.watch(key)
            if self._slices.step():
                await self._slices.next()
