"""The nodes of a simulated world: one, or several that know each other by their settings, each with a host of its own.

What befalls several of them at once, and what belongs to a disk rather than to a process (a copy, an old one, a clone),
is done here; what befalls one alone is in node.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from semel.broker.broker import Broker
from semel.broker.identity import Identity, new_id, write_identity
from semel.log.log import Log
from semel.sim.host import SimWorld
from semel.sim.medium import Medium
from semel.sim.world.findings import Findings
from semel.sim.world.node import BROKER, PORT, ROOT, SimulatedNode
from semel.sim.world.overdue import Overdue
from semel.sim.world.quorum_rules import compare_images, is_led
from semel.sim.world.replicas import Replicas
from semel.sim.world.watching import Watch

CONTROLLER_PORT = 9093
BROKERS_PORT = 9094
SNAPSHOT_AFTER_BYTES = 4000
"""Of metadata: nodes that were away find that the log begins with a snapshot, some time."""
LED_S = 10.0
"""Within this time after the last fault a controller is active: two elections and what a follower waits before."""
QUICK = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "200",
    "initial.broker.registration.timeout.ms": "600000",
}
"""Nodes miss each other soon, so that a run need not last for minutes; and none gives up while it starts."""
REPLICATION_S = 60.0
"""Within this time after the last fault all replicas are in sync: sessions, elections and the lag that may be."""
CLOCKS_APART_MS = (0, 3, -250, 12_000, -90_000)
"""How far apart the wall clocks of several nodes are, of which each has one."""


def name_of(number: int) -> str:
    """Of a node, and of its host; the numbers begin with 1."""
    return BROKER if number == 1 else f"{BROKER}{number}"


def settings_of(number: int, count: int, voters: int = 1) -> dict[str, str]:
    """What tells a node of the others: the first are the controllers, and all of them are brokers. Clients and brokers
    have listeners of their own."""
    if count == 1:
        return {}
    is_voter = number <= voters
    ports = {"PLAINTEXT": PORT, "INSIDE": BROKERS_PORT} | ({"CONTROLLER": CONTROLLER_PORT} if is_voter else {})
    return {
        "node.id": str(number),
        "process.roles": "broker,controller" if is_voter else "broker",
        "listeners": ",".join(f"{listener}://:{port}" for listener, port in ports.items()),
        "advertised.listeners": ",".join(f"{listener}://{name_of(number)}:{port}" for listener, port in ports.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "INSIDE", "CONTROLLER")
        ),
        "inter.broker.listener.name": "INSIDE",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(
            f"{voter}@{name_of(voter)}:{CONTROLLER_PORT}" for voter in range(1, voters + 1)
        ),
        **QUICK,
    }


class Nodes:
    """`first` is the one that clients speak to."""

    def __init__(
        self, world: SimWorld, count: int, settings: Mapping[str, str], findings: Findings, voters: int = 1
    ) -> None:
        self._world = world
        self._findings = findings
        self._voters = voters
        self._watches: dict[str, Watch] = {}
        self._looking: list[asyncio.Task[None]] = []
        self._clones: list[SimulatedNode] = []
        self._cloning: list[asyncio.Task[None]] = []
        self.replicas = Replicas(findings, lambda: self.all) if count > 1 else None
        self.all: list[SimulatedNode] = [
            self._node(name_of(number), {**settings_of(number, count, voters), **settings})
            for number in range(1, count + 1)
        ]
        self.first = self.all[0]
        if count > 1:
            self._prepare()

    def _prepare(self) -> None:
        """As who installs a cluster: the same id on every disk; and clocks that nobody has set."""
        random = self._world.random("installing nodes")
        cluster_id = new_id(random)
        for number, node in enumerate(self.all, 1):
            node.disk.make_dirs(ROOT)
            write_identity(node.disk, ROOT, Identity(cluster_id, number, new_id(random)))
            node.disk.sync_parents_now(ROOT)
            self._world.set_clock_apart(node.name, random.choice(CLOCKS_APART_MS))

    def _node(self, name: str, settings: Mapping[str, str]) -> SimulatedNode:
        loop = self._world.loop
        node = SimulatedNode(self._world, settings, self._findings, lambda broker: self._is_up(node, broker), name)

        def may_act() -> bool:
            return node.is_up and not node.may_fail and not loop.is_frozen(node.owner)

        overdue = Overdue(self._findings, loop.time, may_act)
        self._watches[name] = Watch(self._findings, loop.count_tasks, overdue, self.replicas)
        return node

    def _is_up(self, node: SimulatedNode, broker: Broker) -> None:
        watch = self._watches[node.name]
        if node.has_other_disk:
            watch.forget()
        watch.follow(broker)
        if self._voters > 1:
            broker.metadata.snapshot_after_bytes = SNAPSHOT_AFTER_BYTES

    @property
    def names(self) -> list[str]:
        return [node.name for node in (*self.all, *self._clones)]

    def others(self, node: SimulatedNode) -> list[SimulatedNode]:
        return [other for other in self.all if other is not node]

    # -- life

    async def open(self) -> None:
        # At once: a controller is ready when a majority of them is there.
        await asyncio.gather(*(node.open() for node in self.all))
        for node in self.all:
            self._looking.append(asyncio.get_running_loop().create_task(self._watches[node.name].run()))

    async def until_up(self) -> None:
        for node in self.all:
            await node.until_up()

    def watches(self) -> Iterator[Watch]:
        for node in self.all:
            yield self._watches[node.name]

    def logs(self) -> dict[tuple[str, int], Log]:
        """What clients read: the log of each partition on the node that leads it."""
        if self.replicas is None:
            return dict(self.first.broker.store.logs)
        return self.replicas.logs_of_leaders([node.broker for node in self.all])

    async def until_replicated(self) -> None:
        """Everything is healed and nobody writes: in bounded time all replicas are in sync, and hold the same."""
        if self.replicas is None:
            return
        brokers = [node.broker for node in self.all]
        await self._until(lambda: is_led(brokers), LED_S, "no controller")
        until_s = self._world.loop.time() + REPLICATION_S
        while lacking := self.replicas.lacking(brokers):
            if self._world.loop.time() >= until_s:
                self._findings.wrong("replicas lag", "; ".join(lacking[:5]))
                return
            await asyncio.sleep(0.5)
        self.replicas.compare_all(brokers)
        await self._until(lambda: compare_images(brokers, self._findings), LED_S, "metadata lag")

    async def _until(self, is_so: Callable[[], bool], within_s: float, wrong: str) -> None:
        until_s = self._world.loop.time() + within_s
        while not is_so():
            if self._world.loop.time() >= until_s:
                self._findings.wrong(wrong, f"{within_s:g} s after the last fault")
                return
            await asyncio.sleep(0.1)

    def look_no_more(self) -> None:
        """But once more, at what is there now."""
        for looking in self._looking:
            looking.cancel()
        for watch in self.watches():
            watch.look()

    # -- faults

    def kill_all(self, down_s: float) -> None:
        """Of those that are up, between two steps of the world: none sees another die first."""
        for node in self.all:
            if node.is_up:
                node.kill(down_s)

    def lose_power_of_all(self, down_s: float) -> None:
        for node in self.all:
            if node.is_up:
                node.lose_power(down_s)

    def image(self, node: SimulatedNode) -> Medium:
        """What its disk holds now, for `restore` and `clone`."""
        return self._world.image(node.name)

    def clone(self, node: SimulatedNode, image: Medium) -> SimulatedNode:
        """Another machine with a copy of the disk, and the same settings: it takes itself for that node, and wants to
        be let in for as long as that one lives."""
        name = f"{node.name}-clone{len(self._clones) + 1}"
        self._world.restore(name, image)
        clone = self._node(name, node.settings)
        self._clones.append(clone)
        if self.replicas is not None:
            self.replicas.has_clones = True
        self._cloning.append(asyncio.get_running_loop().create_task(clone.open()))
        return clone

    async def end_clones(self) -> None:
        for cloning in self._cloning:
            cloning.cancel()
        await asyncio.gather(*self._cloning, return_exceptions=True)
        self._cloning.clear()
        for clone in self._clones:
            await clone.close()
            self._world.kill(clone.name)
        self._clones.clear()
