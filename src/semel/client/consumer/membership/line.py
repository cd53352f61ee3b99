"""The membership's own line to the coordinator of its group: one question at a time.

Brokers answer in order, and a JoinGroup may wait for minutes until everyone has come: on a connection that fetches,
metadata or commits share, it would hold them up until they time out, and the connection with it.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from semel.client.cluster import Cluster
from semel.client.coordinators import CoordinatorKind, Coordinators
from semel.client.errors import FatalError, SemelError
from semel.client.peers import ClientConnector, ClientNodes, as_semel_error
from semel.rpc.connection import Connection
from semel.wire.schema import Request, Response

R = TypeVar("R", bound=Response)


class CoordinatorLine:
    def __init__(self, cluster: Cluster, coordinators: Coordinators, group_id: str) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._group_id = group_id
        self._connector = ClientConnector(cluster.host, cluster.settings)
        self._nodes = ClientNodes(cluster.host, cluster.settings, self._connector)
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self.awaits_answer = False
        """A question is with the coordinator: asked, on a connection that stands, and not answered yet."""

    async def ask(self, request: Request, response: type[R], timeout_s: float, *, at_least: int = 0) -> R:
        """One request, tried once. After a failure that may pass, the coordinator is looked up again next time."""
        async with self._turn:
            try:
                return await self._ask(request, response, timeout_s, at_least)
            except Exception as problem:
                error = as_semel_error(problem)
                if not isinstance(error, FatalError):
                    self.moved()
                    self._cluster.stale()
                if isinstance(problem, SemelError):
                    raise
                raise error from problem

    async def _ask(self, request: Request, response: type[R], timeout_s: float, at_least: int) -> R:
        node_id = await self._coordinators.find(CoordinatorKind.GROUP, self._group_id)
        self._nodes.update(self._cluster.view.nodes)
        self._connection = connection = await self._nodes.connect(node_id)
        version = connection.version_of(type(request), at_least=at_least)
        answer = connection.send(request, version, response, timeout_s)
        self.awaits_answer = True
        try:
            return await answer
        finally:
            self.awaits_answer = False

    def moved(self) -> None:
        """The coordinator is elsewhere, or gone."""
        self._coordinators.forget(CoordinatorKind.GROUP, self._group_id)

    def hang_up(self) -> None:
        """Ends the connection: what is not answered yet would hold up what is asked next."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def close(self) -> None:
        await self._nodes.close()
        await self._connector.close()
