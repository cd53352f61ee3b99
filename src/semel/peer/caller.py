"""Who can ask another node for something: so whoever asks need not know how nodes are found and connected to."""

from __future__ import annotations

from typing import Protocol, TypeVar

from semel.wire.schema import Request, Response

R = TypeVar("R", bound=Response)


class PeerCaller(Protocol):
    """Who can ask another broker for something."""

    async def call(
        self, node_id: int, request: Request, response: type[R], *, timeout_s: float, at_least: int = 0, at_most: int
    ) -> R:
        """The node's answer, in the newest version between the two that it serves as well. Raises PeerError: whether
        the request was served is not known then, unless it is Unsupported or the connection could not be made."""
