"""An attack on several nodes: kills and pauses of brokers and of the controller, and cuts of the links between them.

A cut is one of links between nodes or, as of a node alone, one of clients' connections. One fault is over before the
next begins; how a cluster recovers from the last one is not waited for.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Sequence

from semel.sim.attack.assault import PROCESS, Assault, FaultKind
from semel.sim.attack.attacked_cluster import AttackedCluster
from semel.sim.attack.cluster_faults import draw_link_fault, draw_node_fault
from semel.sim.attack.fault_proxy import FaultProxy
from semel.sim.attack.weather import Weather
from semel.sim.history import Finish, History, Outcome

CLIENTS_CHANCE = 0.25
IN_SYNC_S = 60.0
"""After everything has healed: by then all replicas are in sync, or they are stuck."""


class ClusterAssault(Assault):
    def __init__(
        self,
        kinds: Sequence[FaultKind],
        cluster: AttackedCluster,
        weathers: Sequence[Weather],
        random: random_module.Random,
        history: History,
        proxies: Sequence[FaultProxy] = (),
    ) -> None:
        super().__init__(kinds, list(cluster.nodes.values()), weathers, random, history, proxies)
        self._cluster = cluster

    async def heal(self) -> None:
        self._cluster.heal()
        await super().heal()
        finish = self._history.begin(Finish(process=PROCESS, place="all replicas", reads_committed=False))
        missing = await self._cluster.until_in_sync(IN_SYNC_S)
        if missing:
            self._history.end(finish, Outcome.FAIL, f"not in sync after {IN_SYNC_S:.0f} s: {missing}")
        else:
            self._history.ok(finish)

    async def _kill(self) -> None:
        await self._meet_node(FaultKind.KILL)

    async def _pause(self) -> None:
        await self._meet_node(FaultKind.PAUSE)

    async def _meet_node(self, kind: FaultKind) -> None:
        fault = draw_node_fault(kind, self._random, self._cluster.members, await self._cluster.leaders())
        self.struck[f"{kind.value} {fault.target}"] += 1
        node = self._cluster.nodes[fault.node_id]
        name = f"{node.name} ({fault.target}{f' of {fault.leads}' if fault.leads else ''})"
        if kind is FaultKind.KILL:
            await self._kill_node(node, fault.lasts_s, name)
        else:
            await self._pause_node(node, fault.lasts_s, name)

    async def _storm(self, kind: FaultKind) -> None:
        if kind is not FaultKind.CUT or self._random.random() < CLIENTS_CHANCE:
            self.struck[f"{kind.value} clients"] += 1
            await super()._storm(kind)
            return
        fault = draw_link_fault(self._random, self._cluster.members)
        self.struck[f"cut {fault.target}"] += 1
        pairs = ", ".join(f"{source} to {target}" for source, target in fault.pairs)
        note = self._begin(f"cut {fault.target} ({pairs}) for {fault.lasts_s:.2f} s")
        self._cluster.cut(fault.pairs)
        try:
            await asyncio.sleep(fault.lasts_s)
        finally:
            self._cluster.heal()
        self._history.ok(note)
