"""Gives out producer ids from blocks that are durable before the first of them is used, so that none ever repeats."""

import asyncio

from semel.controller.controller import Controller
from semel.log.types import ProducerId


class ProducerIds:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._block = range(0)
        self._next_block: asyncio.Future[None] | None = None

    async def next(self) -> ProducerId:
        """The next id. Whoever finds the block empty asks for another one; the others wait for the same."""
        while not self._block:
            if self._next_block is None:
                self._next_block = asyncio.ensure_future(self._allocate())
                self._next_block.add_done_callback(self._allocated)
            await asyncio.shield(self._next_block)
        producer_id = self._block[0]
        self._block = self._block[1:]
        return producer_id

    async def _allocate(self) -> None:
        block, committed = self._controller.allocate_producer_ids()
        await committed
        self._block = block

    def _allocated(self, _: object) -> None:
        self._next_block = None
