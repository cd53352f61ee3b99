"""Requests from this broker to the others, each by its listener for brokers.

A connection answers in order, and a fetch that waits for data holds up what is behind it. So whoever sends such
requests has a `Peers` of its own, with connections of its own.
"""

from __future__ import annotations

from typing import TypeVar

from semel.broker.cluster_view import ClusterView
from semel.broker.node_info import NodeInfo
from semel.host.api import Host
from semel.peer.backoff import Backoff
from semel.peer.caller import PeerCaller
from semel.peer.connector import Connector
from semel.peer.errors import PeerError, TimedOut, Unreachable, Unsupported
from semel.peer.nodes import Nodes
from semel.rpc.connection import Disconnected, NoAnswer, VersionNotServed
from semel.version import VERSION
from semel.wire.errors import WireError
from semel.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

_CONNECT_S = 5.0
_RECONNECT_FIRST_MS, _RECONNECT_MOST_MS = 50, 1000
_IDLE_S = 540.0


class Peers:
    """`purpose` is part of the client id, which the other node's log tells."""

    def __init__(self, host: Host, node: NodeInfo, cluster: ClusterView, listener: str, purpose: str) -> None:
        self._cluster = cluster
        self._listener = listener
        self._connector = Connector(
            host,
            client_id=f"broker-{node.node_id}-{purpose}",
            software_version=VERSION,
            timeout_s=_CONNECT_S,
            max_frame_bytes=node.config.int("socket.request.max.bytes"),
        )
        backoff = Backoff(host.random, _RECONNECT_FIRST_MS, _RECONNECT_MOST_MS)
        self._nodes = Nodes(host.random, self._connector.open, backoff=backoff, idle_s=_IDLE_S)

    async def call(
        self, node_id: int, request: Request, response: type[R], *, timeout_s: float, at_least: int = 0, at_most: int
    ) -> R:
        self._nodes.update(self._cluster.endpoints(self._listener, include_fenced=True))
        connection = await self._nodes.connect(node_id)
        try:
            version = connection.version_of(type(request), at_least=at_least, at_most=at_most)
            return await connection.send(request, version, response, timeout_s)
        except Disconnected as error:
            raise Unreachable(str(error)) from error
        except NoAnswer as error:
            raise TimedOut(str(error)) from error
        except (VersionNotServed, WireError) as error:
            raise Unsupported(str(error)) from error

    async def close(self) -> None:
        await self._nodes.close()
        await self._connector.close()


__all__ = ["PeerCaller", "PeerError", "Peers"]
