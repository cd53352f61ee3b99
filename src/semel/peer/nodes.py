"""A connection to each node of the cluster, made when it is first needed, and made again when it has ended.

Whoever needs one while it is being made waits for the same attempt. After a failure the next attempt waits a while, and
longer each time; those who can choose another node meanwhile do. Idle connections are closed.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from semel.peer.backoff import Backoff
from semel.peer.errors import AuthenticationFailed, Closed, PeerError, Unreachable
from semel.rpc.connection import Connection

Open = Callable[[str, int, Callable[[Connection], None]], Awaitable[Connection]]
"""Opens a connection to a host and port, ready for requests; calls back when it has ended."""


class Address(Protocol):
    """Where a node is to be found."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class _Peer:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.attempt: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.problem: PeerError | None = None  # of the last attempt to connect
        self.not_before_s = 0.0
        self.used_s = 0.0


class Nodes:
    """A connection that was not used for `idle_s` is closed."""

    def __init__(self, random: random_module.Random, open_connection: Open, *, backoff: Backoff, idle_s: float) -> None:
        self.ended: Callable[[int], None] = lambda node_id: None
        """Called with the id of a node whose connection has ended, or could not be made."""
        self.connected: Callable[[int], None] = lambda node_id: None
        """Called with the id of a node when its connection is ready."""
        self._random = random
        self._backoff = backoff
        self._idle_s = idle_s
        self._open = open_connection
        self._peers: dict[int, _Peer] = {}
        self._is_closed = False
        self._sweeper: asyncio.TimerHandle | None = None

    def update(self, nodes: Mapping[int, Address]) -> None:
        """The nodes of the cluster: a node that has moved or gone loses its connection."""
        for node_id, peer in list(self._peers.items()):
            node = nodes.get(node_id)
            if node is None or (node.host, node.port) != peer.address:
                del self._peers[node_id]
                self._drop(peer)
        for node_id, node in nodes.items():
            if node_id not in self._peers:
                self._peers[node_id] = _Peer((node.host, node.port))

    @property
    def known(self) -> list[int]:
        return list(self._peers)

    def connection(self, node_id: int) -> Connection | None:
        """The connection if there is one now. If not, one is being made, or will be when its pause is over."""
        peer = self._peers.get(node_id)
        if peer is None:
            return None
        connection = peer.connection
        if connection is not None:
            peer.used_s = asyncio.get_running_loop().time()
            return connection
        self._attempt(node_id, peer)
        return None

    def problem(self, node_id: int) -> PeerError | None:
        """Why the node could not be connected to the last time; None while it is, or was never tried."""
        peer = self._peers.get(node_id)
        return None if peer is None else peer.problem

    async def connect(self, node_id: int) -> Connection:
        """Waits for a connection; raises Unreachable when the attempt that runs or begins now fails."""
        if self._is_closed:
            raise Closed("the client was closed")
        peer = self._peers.get(node_id)
        if peer is None:
            raise Unreachable(f"node {node_id} is not part of the cluster any more")
        if peer.connection is None:
            attempt = self._attempt(node_id, peer)
            try:
                await asyncio.shield(attempt)
            except asyncio.CancelledError:
                if attempt.cancelled():  # the node was dropped; we ourselves were not cancelled
                    if self._is_closed:
                        raise Closed("the client was closed") from None
                    raise Unreachable(f"node {node_id} is not part of the cluster any more") from None
                raise
        connection = self.connection(node_id)
        if connection is None:
            raise Unreachable(f"the connection to node {node_id} ended at once")
        return connection

    def least_loaded(self, excluded: set[int] | frozenset[int] = frozenset()) -> int | None:
        """A node to ask what any can answer: connected with little to do, else one that may be tried soonest."""
        now_s = asyncio.get_running_loop().time() if self._peers else 0.0
        best: tuple[tuple[int, float], int] | None = None
        for node_id, peer in self._shuffled():
            if node_id in excluded:
                continue
            if peer.connection is not None:
                rank = (0, float(peer.connection.in_flight))
            elif peer.attempt is not None and peer.failures == 0:
                rank = (1, 0.0)
            else:
                rank = (2, max(peer.not_before_s - now_s, 0.0))
            if best is None or rank < best[0]:
                best = (rank, node_id)
        return None if best is None else best[1]

    def _shuffled(self) -> list[tuple[int, _Peer]]:
        peers = list(self._peers.items())
        self._random.shuffle(peers)
        return peers

    # -- making and ending connections

    def _attempt(self, node_id: int, peer: _Peer) -> asyncio.Task[Connection]:
        if peer.attempt is None:
            peer.attempt = asyncio.get_running_loop().create_task(self._make(node_id, peer))
            peer.attempt.add_done_callback(_look_at)
        return peer.attempt

    async def _make(self, node_id: int, peer: _Peer) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            if peer.not_before_s > loop.time():
                await asyncio.sleep(peer.not_before_s - loop.time())
            host, port = peer.address
            connection = await self._open(host, port, lambda ended: self._has_ended(node_id, peer, ended))
            if not connection.is_open:
                raise Unreachable(f"the connection to node {node_id} ended at once")
        except PeerError as error:
            peer.failures += 1
            peer.problem = error
            # A refused login is worth a long pause: trying again soon locks accounts.
            pause = 30 if isinstance(error, AuthenticationFailed) else peer.failures
            peer.not_before_s = loop.time() + self._backoff.delay_s(pause)
            self.ended(node_id)
            raise
        finally:
            peer.attempt = None
        if self._peers.get(node_id) is not peer or self._is_closed:
            connection.close()
            raise Unreachable(f"node {node_id} is not part of the cluster any more")
        peer.connection = connection
        peer.failures = 0
        peer.problem = None
        peer.used_s = loop.time()
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._idle_s, self._sweep)
        self.connected(node_id)
        return connection

    def _has_ended(self, node_id: int, peer: _Peer, connection: Connection) -> None:
        if peer.connection is connection:
            peer.connection = None
            peer.failures = max(peer.failures, 1)
            peer.not_before_s = asyncio.get_running_loop().time() + self._backoff.delay_s(1)
            if not self._is_closed:
                self.ended(node_id)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(self._idle_s / 2, self._sweep)
        for peer in self._peers.values():
            connection = peer.connection
            if connection is not None and not connection.in_flight and loop.time() - peer.used_s >= self._idle_s:
                peer.connection = None
                connection.close()

    @staticmethod
    def _drop(peer: _Peer) -> None:
        if peer.attempt is not None:
            peer.attempt.cancel()
        if peer.connection is not None:
            peer.connection.close()

    async def close(self) -> None:
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        attempts = [peer.attempt for peer in self._peers.values() if peer.attempt is not None]
        for peer in self._peers.values():
            self._drop(peer)
        await asyncio.gather(*attempts, return_exceptions=True)


def _look_at(task: asyncio.Task[Connection]) -> None:
    """An attempt that nobody waits for may fail quietly: whoever needs the node sees that it is not connected."""
    if not task.cancelled():
        task.exception()
