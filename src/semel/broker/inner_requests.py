"""Requests of clients that a broker has sent on to the active controller, in an envelope (KIP-590)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from semel.log.errors import Refused
from semel.rpc.served import host_of
from semel.wire.errors import ErrorCode


class Sender(NamedTuple):
    """Who has sent a request to the broker that sent it on: as much of a connection as handlers see."""

    principal: str
    peer: str
    listener: str  # by which the envelope came
    number: int  # of the connection by which it came

    @property
    def host(self) -> str:
        return host_of(self.peer)


Answer = Callable[[memoryview, Sender], Awaitable[bytes]]


class InnerRequests:
    """The handlers of a controller's router, for requests that came in envelopes."""

    def __init__(self) -> None:
        self._answer: Answer | None = None

    def serve_with(self, answer: Answer) -> None:
        self._answer = answer

    async def answer(self, frame: memoryview, sender: Sender) -> bytes:
        """The answer to a request with its header, as it goes back to the client; raises Refused."""
        if self._answer is None:
            raise Refused(ErrorCode.NOT_CONTROLLER, "this controller is stopping")
        return await self._answer(frame, sender)
