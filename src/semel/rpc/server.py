"""Accepts connections, counts them, closes the idle ones. What a frame means is for `dispatch` to say.

A node may listen at several addresses, and each connection knows at which it came. Clients cannot keep other nodes out:
where these have a listener of their own, max.connections does not close it, and it has a share of the descriptors.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from semel.config.node_layout import ListenerKind, NodeListener
from semel.host.api import Host, Link, Listener
from semel.host.complaints import Complaints
from semel.metrics.node_counts import RequestCounts
from semel.rpc.budget import MemoryBudget
from semel.rpc.buffers import SpareBuffers
from semel.rpc.served import ANONYMOUS, Answer, ServedConnection
from semel.rpc.served_kernel import SharedBuffer

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger("semel.rpc")

_ALL = ~ListenerKind(0)
_SHARED_BUFFER_BYTES = 256 << 10
# While somebody waits for memory.
_LOOK_S = 1.0
# Connections are looked through for idle ones so often, and so many times until those are closed.
_SWEEP_S = 60.0
_SWEEPS = 10
# Not more often: to look through all of them takes milliseconds.
_SEARCH_S = 0.1
# Of the connections that this process may have open, one in so many is kept for other nodes.
_SHARE_OF_NODES = 8

# A peer has this long for its TLS handshake, and for its login.
_HANDSHAKE_S = 10.0
LOGIN_S = 30.0


class TlsRules(Protocol):
    """Of a listener with TLS."""

    def context(self) -> ssl.SSLContext: ...

    def principal_of(self, certificate: dict[str, Any] | None) -> str | None:
        """Who has proved to own a certificate, or has shown none; None: nobody that may come."""


class Guard(Protocol):
    """How a listener takes its connections."""

    @property
    def tls(self) -> TlsRules | None: ...

    def new_login(self) -> object | None:
        """What a connection has to go through before it may ask for anything; None: nothing."""


Dispatch: TypeAlias = Callable[[ServedConnection, memoryview], Answer]


@dataclass(frozen=True)
class Limits:
    """What clients may take of this node."""

    connections: int
    connections_per_host: int
    idle_ms: int
    frame_bytes: int
    frame_bytes_before_authentication: int


class Server:
    """The listening side of a node."""

    def __init__(
        self,
        host: Host,
        limits: Limits,
        dispatch: Dispatch,
        failed: Callable[[BaseException], None],
        budget: MemoryBudget,
        requests: RequestCounts,
    ) -> None:
        self.requests = requests
        self.refused = 0  # connections
        self.dispatch = dispatch
        self.limits = limits
        self.budget = budget
        budget.when_short = self._look_soon
        self.shared_buffer = SharedBuffer(_SHARED_BUFFER_BYTES)
        self.buffers = SpareBuffers()
        self.connections: dict[ServedConnection, None] = {}  # in the order in which they came
        self.holding: dict[ServedConnection, None] = {}  # memory, for frames that are not whole yet
        self._per_host: Counter[str] = Counter()
        self._host = host
        self._failed = failed
        self.listeners: dict[str, NodeListener] = {}  # by name, with the ports that they have got
        self._protected: frozenset[str] = frozenset()
        self._listening: list[Listener] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._accepted = 0
        self._early: list[tuple[str, Link]] = []
        self._open = ListenerKind(0)
        self._closed_gates: set[str] = set()  # of listeners by their names
        self._idle = deque[ServedConnection]()  # found by the last search, the one that is to go first at the left
        self._next_search_s = 0.0
        self._guards: dict[str, Guard] = {}
        self._shaking: set[asyncio.Task[None]] = set()  # TLS handshakes that are under way
        self._complaints = Complaints(logger)

    async def listen(self, listener: NodeListener, guard: Guard | None = None) -> None:
        """Connections are taken from now on, and served once the gate is open."""
        name = listener.name
        if guard is not None:
            self._guards[name] = guard
        listening = await self._host.network.listen(listener.host, listener.port, partial(self._accept, name))
        self._listening.append(listening)
        self.listeners[name] = listener.bound_to(listening.port)
        if not listener.kind & self._open:
            self._closed_gates.add(name)
        self._protected = _protected(self.listeners.values())
        if self._sweep is None:
            self._schedule_sweep()

    def open_gate(self, kind: ListenerKind = _ALL) -> None:
        """Begins to serve the listeners of this kind: until then connections are taken and kept waiting."""
        self._open |= kind
        self._closed_gates -= {name for name in self._closed_gates if self.listeners[name].kind & kind}
        early, self._early = self._early, []
        for name, link in early:
            self._accept(name, link)

    def _accept(self, name: str, link: Link) -> None:
        most, limits = self._host.network.most_connections, self.limits
        if self._closed_gates and name in self._closed_gates:
            if len(self._early) < most:
                self._early.append((name, link))
            else:
                self._refuse(link, "this process may have %d open, and does not serve yet", most)
            return
        if self._protected and name not in self._protected:
            most -= most // _SHARE_OF_NODES
        address = link.peer.rpartition(":")[0]
        taken = len(self.connections) + len(self._shaking)
        if taken >= limits.connections and name not in self._protected:
            self._refuse(link, "max.connections is %d", limits.connections)
        elif self._per_host[address] >= limits.connections_per_host:
            self._refuse(link, "max.connections.per.ip is %d", limits.connections_per_host)
        elif taken >= most and not self._close_an_idle_one(most):
            self._refuse(link, "this process may have %d open, and none is idle: see ulimit -n", most)
        else:
            self._per_host[address] += 1
            guard = self._guards.get(name)
            if guard is None or guard.tls is None:
                self._take(name, link, ANONYMOUS, guard)
            else:
                task = asyncio.get_running_loop().create_task(self._shake_hands(name, link, guard, guard.tls))
                self._shaking.add(task)
                task.add_done_callback(self._shaking.discard)

    async def _shake_hands(self, name: str, link: Link, guard: Guard, tls: TlsRules) -> None:
        from semel.host.tls_link import TlsLink  # a node without TLS does without OpenSSL

        secured = TlsLink(link, tls.context(), server_hostname=None, server_side=True)
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                await secured.handshake()
            principal = tls.principal_of(secured.peer_certificate())
            why = "ssl.principal.mapping.rules have no rule for its certificate" if principal is None else ""
        except (OSError, TimeoutError) as error:
            principal, why = None, str(error) or f"its handshake took more than {_HANDSHAKE_S:g} s"
        except BaseException:
            secured.close()
            raise
        if principal is None:
            self.complain("tls", logging.INFO, "closing the connection of %s to %s: %s", link.peer, name, why)
            secured.close()
            self._forget_host(link.peer)
        else:
            self._take(name, secured, principal, guard)

    def _take(self, name: str, link: Link, principal: str, guard: Guard | None) -> None:
        self._accepted += 1
        login = None if guard is None else guard.new_login()
        connection = ServedConnection(self, link, self._accepted, name, principal, login)
        self.connections[connection] = None
        if login is not None:
            connection.begin_login(LOGIN_S)
        link.start(connection)

    @property
    def newest_connection(self) -> int:
        """The number of the connection that was accepted last; 0 when there was none."""
        return self._accepted

    def _refuse(self, link: Link, why: str, limit: int) -> None:
        self.complain(f"refused: {why}", logging.WARNING, f"refused the connection of %s: {why}", link.peer, limit)
        link.close()
        self.refused += 1

    def complain(self, kind: str, level: int, text: str, *args: object, error: BaseException | None = None) -> None:
        """What peers can bring about as often as they like is counted."""
        self._complaints.say(kind, level, text, *args, exc_info=error)

    def _close_an_idle_one(self, most: int) -> bool:
        """Room for another connection, at the expense of that which has been idle for longest: it may come again."""
        now_s = asyncio.get_running_loop().time()
        if not self._idle and now_s >= self._next_search_s:
            self._next_search_s = now_s + _SEARCH_S
            idle = [
                connection
                for connection in self.connections
                if connection.is_idle and connection.listener not in self._protected
            ]
            self._idle.extend(sorted(idle, key=lambda connection: -connection.idle_sweeps))
        while self._idle:
            connection = self._idle.popleft()
            if connection.is_open and connection.is_idle:
                text = "closed the idle connection of %s for a new one: this process may have %d open, see ulimit -n"
                self.complain("idle", logging.WARNING, text, connection.peer, most)
                connection.drop()
                return True
        return False

    def frame_limit_bytes(self, connection: ServedConnection) -> int:
        if connection.is_authenticated:
            return self.limits.frame_bytes
        return self.limits.frame_bytes_before_authentication

    def failed(self, connection: ServedConnection, error: BaseException) -> None:
        """A request could not be served and it was not the peer's fault."""
        kind = f"failed: {type(error).__name__} at {_place(error)}"
        self.complain(kind, logging.ERROR, "a request of %s failed", connection.peer, error=error)
        self._failed(error)

    def forget(self, connection: ServedConnection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self._forget_host(connection.peer)

    def _forget_host(self, peer: str) -> None:
        address = peer.rpartition(":")[0]
        self._per_host[address] -= 1
        if not self._per_host[address]:
            del self._per_host[address]

    def _schedule_sweep(self, number: int = 1) -> None:
        idle_s = self.limits.idle_ms / 1000
        pause_s = min(_SWEEP_S, idle_s / _SWEEPS) if idle_s > 0 else _SWEEP_S
        closing = max(1, round(idle_s / pause_s))  # every so many sweeps
        self._sweep = asyncio.get_running_loop().call_later(pause_s, self._look_for_idle_ones, number, closing)

    def _look_for_idle_ones(self, number: int, closing: int) -> None:
        """A connection that did nothing since the last sweep that closed any has been idle for at least that long."""
        closes = self.limits.idle_ms > 0 and number % closing == 0
        for connection in list(self.connections):
            connection.idle_sweeps = connection.idle_sweeps + 1 if connection.is_idle else 0
            connection.was_active = False
            if closes and connection.idle_sweeps >= closing:
                logger.debug("closing the idle connection of %s", connection.peer)
                connection.close()
        self._schedule_sweep(number + 1)

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
        for listening in self._listening:
            listening.close()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._look is not None:
            self._look.cancel()
        for _, link in self._early:
            link.close()
        for task in self._shaking:
            task.cancel()
        for connection in list(self.connections):
            connection.close()


def _protected(listeners: Iterable[NodeListener]) -> frozenset[str]:
    """The names of the listeners that are for nodes alone."""
    return frozenset(listener.name for listener in listeners if ListenerKind.CLIENTS not in listener.kind)


def _place(error: BaseException) -> str:
    """Where it was raised."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "nowhere" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
