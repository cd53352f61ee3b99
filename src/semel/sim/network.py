"""The simulated Network: connections between named nodes of one process, with seeded latency, chunks and failures.

`Wires` is the world's cabling and its faults; `SimNetwork` is what one node sees of it. A stream keeps its order, as
TCP does; what goes wrong is that it is slow, cut in the middle, silent for ever, or reset.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random as random_module
from collections import deque
from collections.abc import Callable, Iterable
from sys import maxsize
from typing import Literal, NoReturn

from semel.host.api import KEEPALIVE_S, Link
from semel.host.rounds import serve_readings
from semel.sim.link import Pipe, SimLink
from semel.sim.loop import SimLoop
from semel.sim.power import PowerLost

FIRST_FREE_PORT = 40_000
CONNECT_TIMEOUT_S = 60.0
LOGGED_EVENTS = 10_000
LOCAL_HOSTS = ("", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost")


class _Fuse:
    """A node dies around one of the sends to come."""

    def __init__(self, nth: int, when: Literal["before", "after"], die: Callable[[], None]) -> None:
        self.nth = nth
        self.when = when
        self.die = die


class _Trap:
    """Something happens at one of a node's calls to come."""

    def __init__(self, nth: int, spring: Callable[[], None]) -> None:
        self.nth = nth
        self.spring = spring


TOGETHER, DIED_TOGETHER = "requests of several connections together", "death between judging and answering them"
"""What may be seen of rounds."""


class Round:
    """The links of a node that are ready: served in one go, as a busy node finds them when it looks."""

    def __init__(self, wires: Wires, node: str) -> None:
        self._wires = wires
        self._node = node
        self._ready: list[SimLink] = []

    def join(self, link: SimLink) -> None:
        self._ready.append(link)
        if len(self._ready) == 1:
            wires = self._wires
            delay_s = wires.random.uniform(0, wires.round_ms) / 1000 if wires.round_ms else 0
            wires.loop.call_later(delay_s, self._serve, context=wires.context)

    def _serve(self) -> None:
        ready, self._ready = self._ready, []
        starts = self._wires.starts_of(self._node)
        if serve_readings(ready) > 1:
            self._wires.rounds_seen.add(TOGETHER)
            if self._wires.starts_of(self._node) != starts:
                self._wires.rounds_seen.add(DIED_TOGETHER)


class Wires:
    """All connections of a simulated world. Nodes are known by name, and their host name is the node's name.

    `latency_ms` is drawn for every chunk; `cut_chance` is the chance, per chunk, that the connection is reset there.
    A node reads what has arrived after a time of up to `round_ms`, and all that has arrived until then with it.
    """

    def __init__(
        self,
        loop: SimLoop,
        random: random_module.Random | int,
        *,
        latency_ms: tuple[float, float] = (0.1, 1.0),
        cut_chance: float = 0.0,
        round_ms: float = 0.0,
    ) -> None:
        self.loop = loop
        self.random = random_module.Random(random) if isinstance(random, int) else random
        self.latency_ms = latency_ms
        self.cut_chance = cut_chance
        self.round_ms = round_ms
        self.rounds_seen: set[str] = set()
        self._rounds: dict[str, Round] = {}
        self.log: deque[tuple[float, str]] = deque(maxlen=LOGGED_EVENTS)
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._links: dict[int, SimLink] = {}  # by number, both ends of every connection
        self._last_number = 0
        self._parted: set[tuple[str, str]] = set()
        """Pairs of nodes: what the first sends does not get to the second."""
        self._held_up: dict[int, Pipe] = {}
        """Pipes of which something waits at a partition, by the number of their sender, which may have closed since."""
        self._slow: dict[frozenset[str], tuple[float, float]] = {}
        self._starts: dict[str, int] = {}
        self._healed: asyncio.Event | None = None
        self._fuses: dict[str, _Fuse] = {}
        self._traps: dict[str, _Trap] = {}
        self.context = contextvars.Context()
        """What is on its way belongs to nobody: it arrives also when its sender has died."""

    # Faults

    def crash_at_send(
        self, node: str, nth: int, die: Callable[[], None], when: Literal["before", "after"] = "before"
    ) -> None:
        """At the nth send of a node from now on it dies: `die` is called, and the node gets no further."""
        self._fuses[node] = _Fuse(nth, when, die)

    def at_call(self, node: str, nth: int, spring: Callable[[], None]) -> None:
        """At the nth call of a node to its network from now on `spring` is called: before and after a connect, at a
        send, before a close."""
        self._traps[node] = _Trap(nth, spring)

    def at_no_call(self) -> None:
        self._traps.clear()

    def disarm(self, node: str) -> None:
        """It dies at no send any more."""
        self._fuses.pop(node, None)

    def part(self, nodes: Iterable[str], others: Iterable[str]) -> None:
        """Nothing passes between two groups of nodes until `heal`; bytes on their way wait, as if resent."""
        nodes, others = list(nodes), list(others)
        self._cut_off(nodes, others)
        self._cut_off(others, nodes)
        self.note(f"parted {sorted(self._parted)}")

    def part_one_way(self, senders: Iterable[str], receivers: Iterable[str]) -> None:
        """What `senders` send does not get to `receivers`, which they still hear: no connection can begin, and one that
        is there goes on in one direction."""
        self._cut_off(list(senders), list(receivers))
        self.note(f"parted {sorted(self._parted)}")

    def _cut_off(self, senders: list[str], receivers: list[str]) -> None:
        self._parted.update((one, other) for one in senders for other in receivers if one != other)

    def heal(self) -> None:
        """Every pair of nodes can talk again, at the normal speed. Silent links stay silent."""
        self._parted.clear()
        self._slow.clear()
        self.note("healed")
        self._go_on()

    def rejoin(self, nodes: Iterable[str], others: Iterable[str]) -> None:
        """These can talk to each other again, in both directions; other cuts stay."""
        nodes, others = set(nodes), set(others)
        self._parted = {
            (sender, receiver)
            for sender, receiver in self._parted
            if not (sender in nodes and receiver in others) and not (sender in others and receiver in nodes)
        }
        self.note(f"parted {sorted(self._parted)}")
        self._go_on()

    def _go_on(self) -> None:
        """What waited at a cut is on its way again, and waits once more if it is not over."""
        if self._healed is not None:
            self._healed.set()
            self._healed = None
        held_up, self._held_up = self._held_up, {}
        for number in sorted(held_up):
            held_up[number].resume()

    def slow_down(self, node: str, other: str, latency_ms: tuple[float, float]) -> None:
        self._slow[frozenset((node, other))] = latency_ms

    def links(self, node: str | None = None, other: str | None = None) -> list[SimLink]:
        """Open ends, oldest first: all, those of a node, or those of a node that lead to another."""
        return [
            link
            for link in self._links.values()
            if (node is None or link.node == node) and (other is None or link.other_end.node == other)
        ]

    def cut(self, link: SimLink) -> None:
        """Reset a connection: of what was on its way a part arrives, then both ends are told, each in its own time."""
        self.note(f"cut {link!r}")
        for end in (link, link.other_end):
            end.outgoing.cut_short()
            end.outgoing.reset_reader()

    def silence(self, link: SimLink) -> None:
        """Half-open: what this end sends vanishes from now on. Both ends find out by their probes, which need the
        answer of the other."""
        self.note(f"silenced {link!r}")
        link.outgoing.vanish()
        for end in (link, link.other_end):
            self._probe(end)

    def _probe(self, link: SimLink) -> None:
        self.loop.call_later(KEEPALIVE_S, link.time_out, context=self.context)

    def crash(self, node: str, *, silent: bool = False) -> None:
        """The node's process is gone. Its peers see a reset or, if silent (power loss), nothing until it is back or
        their probes give up."""
        self.note(f"{node} crashed{' silently' if silent else ''}")
        self._starts[node] = self._starts.get(node, 0) + 1
        self._fuses.pop(node, None)
        for address in [address for address, listener in self._listeners.items() if listener.node == node]:
            del self._listeners[address]
        for link in self.links(node):
            other = link.other_end
            link.abandon()
            if self.random.random() < 0.5:
                link.outgoing.cut_short()  # else the node's last words still arrive
            other.outgoing.vanish(until_started=node)
            if silent:
                self._probe(other)
            else:
                link.outgoing.reset_reader()

    def started(self, node: str) -> None:
        """The node is back: whoever still talks to its former self is reset."""
        for link in self.links():
            if link.other_end.node == node:
                link.outgoing.answer_with_reset(node)

    # What links and networks ask

    def note(self, event: str) -> None:
        self.log.append((self.loop.time(), event))

    def sending(self, node: str) -> Literal["before", "after"] | None:
        """Whether the node dies in this send of its."""
        self.calling(node)
        fuse = self._fuses.get(node)
        if fuse is None:
            return None
        fuse.nth -= 1
        return fuse.when if fuse.nth <= 0 else None

    def calling(self, node: str) -> None:
        trap = self._traps.get(node) if self._traps else None
        if trap is not None:
            trap.nth -= 1
            if trap.nth <= 0:
                del self._traps[node]
                trap.spring()

    def blow_fuse(self, node: str) -> NoReturn:
        self._fuses.pop(node).die()
        raise PowerLost(f"{node} at a send")

    def round_of(self, node: str) -> Round:
        if node not in self._rounds:
            self._rounds[node] = Round(self, node)
        return self._rounds[node]

    def is_cut_off(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._parted

    def are_parted(self, node: str, other: str) -> bool:
        """Whether no connection can begin: for that both have to hear each other."""
        return self.is_cut_off(node, other) or self.is_cut_off(other, node)

    def hold_up(self, number: int, pipe: Pipe) -> None:
        self._held_up[number] = pipe

    def starts_of(self, node: str) -> int:
        return self._starts.get(node, 0)

    def draw_latency_s(self, node: str, other: str) -> float:
        least, most = self._slow.get(frozenset((node, other)), self.latency_ms)
        return self.random.uniform(least, most) / 1000

    def later(self, link: SimLink, action: Callable[[], None]) -> None:
        latency_s = self.draw_latency_s(link.node, link.other_end.node)
        self.loop.call_later(latency_s, action, context=self.context)

    def forget(self, link: SimLink) -> None:
        self._links.pop(link.number, None)

    def join(self, node: str, other: str, address: str) -> tuple[SimLink, SimLink]:
        """Both ends of a new connection from a node to the address of another."""
        ends = []
        for here in (node, other):
            self._last_number += 1
            ends.append(SimLink(self, self._last_number, here))
        near, far = ends
        near.peer, far.peer = address, f"{node}:{FIRST_FREE_PORT + near.number}"
        near.other_end, far.other_end = far, near
        for link in ends:
            link.outgoing = Pipe(self, link, link.other_end)
            self._links[link.number] = link
        return near, far

    async def until_healed(self) -> None:
        if self._healed is None:
            self._healed = asyncio.Event()
        await self._healed.wait()

    def listener(self, host: str, port: int) -> SimListener | None:
        return self._listeners.get((host, port))

    def add_listener(self, listener: SimListener) -> None:
        self._listeners[listener.host, listener.port] = listener

    def remove_listener(self, listener: SimListener) -> None:
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[listener.host, listener.port]

    def free_port(self) -> int:
        self._last_number += 1
        return FIRST_FREE_PORT + self._last_number


class SimListener:
    def __init__(self, wires: Wires, node: str, host: str, port: int, accept: Callable[[Link], None]) -> None:
        self.node = node
        self.host = host
        self.port = port
        self._accept = accept
        self._wires = wires
        self._context = contextvars.copy_context()

    def accept(self, link: Link) -> None:
        """In the context of whoever listens: the connection's work is his."""
        if self._wires.listener(self.host, self.port) is not self:
            link.close()  # it has waited at a door that was closed meanwhile
        elif not self._wires.loop.holds_back(self._context, lambda: self.accept(link)):
            self._context.run(self._accept, link)

    def close(self) -> None:
        self._wires.remove_listener(self)


class SimNetwork:
    """One node's network. A node listens under its own name, whatever local address it is given."""

    def __init__(self, wires: Wires, node: str) -> None:
        self._wires = wires
        self._node = node
        self.most_connections = maxsize
        self._start = wires.starts_of(node)
        wires.started(node)

    def _check_alive(self) -> None:
        if self._start != self._wires.starts_of(self._node):
            raise PowerLost(f"{self._node} is dead already")

    def _host(self, host: str) -> str:
        return self._node if host in LOCAL_HOSTS else host

    async def listen(self, host: str, port: int, accept: Callable[[Link], None]) -> SimListener:
        self._check_alive()
        host = self._host(host)
        port = port or self._wires.free_port()
        if self._wires.listener(host, port) is not None:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        listener = SimListener(self._wires, self._node, host, port, accept)
        self._wires.add_listener(listener)
        return listener

    async def connect(self, host: str, port: int) -> SimLink:
        wires = self._wires
        wires.calling(self._node)
        self._check_alive()
        host = self._host(host)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.sleep(wires.draw_latency_s(self._node, host))
                while wires.are_parted(self._node, self._node_at(host, port)):
                    await wires.until_healed()
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"{host}:{port} does not answer") from None
        self._check_alive()
        listener = wires.listener(host, port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {host}:{port}")
        near, far = wires.join(self._node, listener.node, f"{host}:{port}")
        wires.loop.call_soon(far.offer_to, listener.accept)
        try:
            await asyncio.sleep(wires.draw_latency_s(self._node, listener.node))
            wires.calling(self._node)
            self._check_alive()
        except BaseException:
            near.close()
            raise
        return near

    def _node_at(self, host: str, port: int) -> str:
        listener = self._wires.listener(host, port)
        return host if listener is None else listener.node
