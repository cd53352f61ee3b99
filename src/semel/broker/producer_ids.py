"""Gives out producer ids from blocks that are durable before the first of them is used, so that none ever repeats.

The controller gives the blocks, which may take a round trip: the next one is asked for when most of the last is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from semel.log.errors import Refused
from semel.log.types import ProducerId
from semel.wire.errors import ErrorCode

# A block is asked for when so few ids are left: a tenth of the controller's blocks of a thousand.
_FEW = 100


class ProducerIds:
    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        """`allocate` returns a block that nobody else has or gets; it may raise Refused."""
        self._allocate = allocate
        self._block = range(0)
        self._next_block = range(0)
        self._request: asyncio.Task[None] | None = None

    async def next(self) -> ProducerId:
        """The next id. While there is none, all who ask wait for the same block; raises what its request raised."""
        while not self._block:
            await asyncio.shield(self._request or self._begin())
            self._follow_up()
        producer_id = self._block[0]
        self._block = self._block[1:]
        self._follow_up()
        if len(self._block) <= _FEW and not self._next_block and self._request is None:
            self._begin()
        return producer_id

    def _follow_up(self) -> None:
        if not self._block:
            self._block, self._next_block = self._next_block, range(0)

    def _begin(self) -> asyncio.Task[None]:
        self._request = asyncio.ensure_future(self._ask())
        self._request.add_done_callback(self._answered)
        return self._request

    async def _ask(self) -> None:
        try:
            self._next_block = await self._allocate()
        except Refused as refusal:
            if refusal.code != ErrorCode.REQUEST_TIMED_OUT:
                raise
            # Clients know no controller. They are told to come again, as Kafka tells them.
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids: {refusal.text}") from refusal

    def _answered(self, request: asyncio.Task[None]) -> None:
        """Whoever waits is told of a failure. One that nobody waits for is no loss: who finds no id asks again."""
        self._request = None
        if not request.cancelled():
            request.exception()

    def close(self) -> None:
        if self._request is not None:
            self._request.cancel()
