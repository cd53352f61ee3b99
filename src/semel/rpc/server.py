"""Accepts connections, counts them, closes the idle ones. What a frame means is for `dispatch` to say."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from semel.host.api import Host, Link, Listener
from semel.rpc.budget import MemoryBudget
from semel.rpc.buffers import SpareBuffers
from semel.rpc.served import Answer, ServedConnection
from semel.rpc.served_kernel import SharedBuffer

logger = logging.getLogger("semel.rpc")

_SHARED_BUFFER_BYTES = 256 << 10
# While somebody waits for memory.
_LOOK_S = 1.0

Dispatch: TypeAlias = Callable[[ServedConnection, memoryview], Answer]


@dataclass(frozen=True)
class Limits:
    """What clients may take of this node."""

    connections: int
    connections_per_host: int
    idle_ms: int
    frame_bytes: int
    frame_bytes_before_authentication: int
    requests_in_memory_bytes: int


class Server:
    """The listening side of a node."""

    def __init__(self, host: Host, limits: Limits, dispatch: Dispatch, failed: Callable[[BaseException], None]) -> None:
        self.dispatch = dispatch
        self.limits = limits
        self.budget = MemoryBudget(limits.requests_in_memory_bytes, self._look_soon)
        self.shared_buffer = SharedBuffer(_SHARED_BUFFER_BYTES)
        self.buffers = SpareBuffers()
        self.connections: dict[ServedConnection, None] = {}  # in the order in which they came
        self.holding: dict[ServedConnection, None] = {}  # memory, for frames that are not whole yet
        self._per_host: Counter[str] = Counter()
        self._host = host
        self._failed = failed
        self._listener: Listener | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._accepted = 0
        self._early: list[Link] | None = []
        self._refused = 0

    @property
    def port(self) -> int:
        if self._listener is None:
            raise ValueError("the server does not listen")
        return self._listener.port

    async def listen(self, host: str, port: int) -> None:
        self._listener = await self._host.network.listen(host, port, self._accept)
        self._schedule_sweep()

    def open_gate(self) -> None:
        """Begins to serve: until then connections are taken and kept waiting."""
        early, self._early = self._early or [], None
        for link in early:
            self._accept(link)

    def _accept(self, link: Link) -> None:
        if self._early is not None:
            self._early.append(link)
            return
        address = link.peer.rpartition(":")[0]
        if len(self.connections) >= self.limits.connections or (
            self._per_host[address] >= self.limits.connections_per_host
        ):
            self._refused += 1
            if self._refused & (self._refused - 1) == 0:
                logger.warning(
                    "refused %d connections so far, the last from %s: max.connections is %d, "
                    "max.connections.per.ip is %d",
                    self._refused,
                    link.peer,
                    self.limits.connections,
                    self.limits.connections_per_host,
                )
            link.close()
            return
        self._accepted += 1
        connection = ServedConnection(self, link, self._accepted)
        self.connections[connection] = None
        self._per_host[address] += 1
        link.start(connection)

    def frame_limit_bytes(self, connection: ServedConnection) -> int:
        if connection.is_authenticated:
            return self.limits.frame_bytes
        return self.limits.frame_bytes_before_authentication

    def failed(self, connection: ServedConnection, error: BaseException) -> None:
        """A request could not be served and it was not the peer's fault."""
        logger.error("a request of %s failed", connection.peer, exc_info=error)
        self._failed(error)

    def forget(self, connection: ServedConnection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            address = connection.peer.rpartition(":")[0]
            self._per_host[address] -= 1
            if not self._per_host[address]:
                del self._per_host[address]

    def _schedule_sweep(self) -> None:
        if self.limits.idle_ms > 0:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(self.limits.idle_ms / 1000, self._close_idle)

    def _close_idle(self) -> None:
        """A connection that did nothing since the last sweep has been idle for at least that long."""
        for connection in list(self.connections):
            if not connection.was_active and not connection.is_waiting:
                logger.debug("closing the idle connection of %s", connection.peer)
                connection.close()
            connection.was_active = False
        self._schedule_sweep()

    def _look_soon(self) -> None:
        """Somebody waits for memory."""
        if self._look is None:
            for connection in self.holding:
                connection.comes_on()  # from now on
            self._schedule_look()

    def _schedule_look(self) -> None:
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(_LOOK_S, self._give_up_those_that_do_not_come_on)

    def _give_up_those_that_do_not_come_on(self) -> None:
        """Those that hold most go first, and no more than have to."""
        stalled = [connection for connection in self.holding if not connection.comes_on()]
        for connection in sorted(stalled, key=lambda connection: -connection.held_bytes):
            if self.budget.waiting:
                connection.give_up()
        self._look = None
        if self.budget.waiting:
            self._schedule_look()

    def close(self) -> None:
        """Accepts no more and ends every connection after what it has been answered."""
        if self._listener is not None:
            self._listener.close()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._look is not None:
            self._look.cancel()
        for link in self._early or ():
            link.close()
        for connection in list(self.connections):
            connection.close()
