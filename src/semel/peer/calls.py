"""Requests from this node to others, by a connection to each, in the newest version that both sides serve.

A connection answers in order, and a fetch that waits for data holds up what is behind it. So whoever sends such
requests has calls, and with them connections, of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from semel.host.api import Host
from semel.peer.backoff import Backoff
from semel.peer.connector import Connector
from semel.peer.errors import TimedOut, Unreachable, Unsupported
from semel.peer.nodes import Address, Nodes
from semel.rpc.connection import Disconnected, NoAnswer, VersionNotServed
from semel.version import VERSION
from semel.wire.errors import WireError
from semel.wire.schema import Request, Response

if TYPE_CHECKING:
    import ssl

    from semel.peer.security.sasl import Mechanism

R = TypeVar("R", bound=Response)

_CONNECT_S = 5.0
_RECONNECT_FIRST_MS, _RECONNECT_MOST_MS = 50, 1000
_IDLE_S = 540.0


class HostPort(NamedTuple):
    """Where a node is reached."""

    host: str
    port: int


class Calls:
    """`addresses` is asked at each call: a node that has moved or gone loses its connection."""

    def __init__(
        self,
        host: Host,
        addresses: Callable[[], Mapping[int, Address]],
        *,
        client_id: str,
        max_frame_bytes: int,
        connect_s: float = _CONNECT_S,
        reconnect_most_ms: int = _RECONNECT_MOST_MS,
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: Callable[[], Mechanism] | None = None,
    ) -> None:
        self._addresses = addresses
        self._connector = Connector(
            host,
            client_id=client_id,
            software_version=VERSION,
            timeout_s=connect_s,
            max_frame_bytes=max_frame_bytes,
            tls=tls,
            login=login,
        )
        backoff = Backoff(host.random, _RECONNECT_FIRST_MS, reconnect_most_ms)
        self._nodes = Nodes(host.random, self._connector.open, backoff=backoff, idle_s=_IDLE_S)

    async def call(
        self, node_id: int, request: Request, response: type[R], *, timeout_s: float, at_least: int = 0, at_most: int
    ) -> R:
        self._nodes.update(self._addresses())
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
