"""A PeerCaller whose other side is the test: what is asked waits until the test answers."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from semel.peer.errors import PeerError
from semel.wire.schema import Request


class Call(NamedTuple):
    node_id: int
    request: Any
    answer: asyncio.Future[Any]

    def fails(self, error: PeerError) -> None:
        self.answer.set_exception(error)


class Wire:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.versions: tuple[int, int] = (0, 0)

    async def call(
        self, node_id: int, request: Request, response: Any, *, timeout_s: float, at_least: int = 0, at_most: int
    ) -> Any:
        self.versions = at_least, at_most
        call = Call(node_id, request, asyncio.get_running_loop().create_future())
        self.calls.append(call)
        return await call.answer

    def open(self, node_id: int) -> list[Call]:
        """What this node has not answered."""
        return [call for call in self.calls if call.node_id == node_id and not call.answer.done()]

    def only(self, node_id: int) -> Call:
        (call,) = self.open(node_id)
        return call


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
