"""A run on real machines: proxies before the cluster, nodes of our own if wanted, and the attack on both.

Clients of the first generation of transactions go through a proxy that hides the second from them; with faults on
connections everybody goes through one. A TLS connection cannot be looked into: there all go straight to the cluster.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from semel.host.api import Host
from semel.sim.attack.assault import Assault, FaultKind
from semel.sim.attack.attacked_cluster import AttackedCluster
from semel.sim.attack.cluster_assault import ClusterAssault
from semel.sim.attack.fault_answers import FIRST_GENERATION_HIDDEN, FIRST_GENERATION_LIMITS
from semel.sim.attack.fault_proxy import FaultProxy
from semel.sim.attack.local_node import SERVE, LocalNode
from semel.sim.attack.weather import Weather
from semel.sim.history import History
from semel.sim.workload.access import FIRST_GENERATION, SECOND_GENERATION

Randoms = Callable[[str], random_module.Random]


class Campaign:
    """`async with` it: `addresses` are then the ways to the cluster, `assault` what is done to it."""

    def __init__(
        self,
        host: Host,
        random: Randoms,
        history: History,
        kinds: Sequence[FaultKind],
        *,
        bootstrap: str = "",
        can_look_inside: bool = True,
        local_root: Path | None = None,
        node_count: int = 1,
        node_command: Sequence[str] = SERVE,
    ) -> None:
        self.addresses: dict[int, str] = {}
        self.nodes: list[LocalNode] = []
        self.cluster: AttackedCluster | None = None
        self.proxies: list[FaultProxy] = []
        self.weathers: list[Weather] = []
        self._host = host
        self._random = random
        self._history = history
        self._kinds = list(kinds)
        self._bootstrap = bootstrap
        self._can_look_inside = can_look_inside
        if local_root is not None and node_count > 1:
            self.cluster = AttackedCluster(host, local_root, node_count, command=node_command)
        elif local_root is not None:
            self.nodes.append(LocalNode("node 0", local_root / "node-0", command=node_command))

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open(self) -> None:
        for node in self.nodes:
            await node.start()
        if self.nodes:
            self._bootstrap = ",".join(f"{node.address[0]}:{node.address[1]}" for node in self.nodes)
        if self.cluster is not None:
            await self.cluster.start()
            self._bootstrap = self.cluster.bootstrap_servers
        self.addresses[SECOND_GENERATION] = self._bootstrap
        if not self._can_look_inside:
            return
        if self._kinds:
            self.addresses[SECOND_GENERATION] = await self._behind_proxy(SECOND_GENERATION)
        self.addresses[FIRST_GENERATION] = await self._behind_proxy(FIRST_GENERATION)

    async def _behind_proxy(self, generation: int) -> str:
        weather = Weather(self._random(f"weather-{generation}"))
        is_first = generation == FIRST_GENERATION
        proxy = FaultProxy(
            self._host,
            weather,
            version_limits=FIRST_GENERATION_LIMITS if is_first else None,
            hidden_features=FIRST_GENERATION_HIDDEN if is_first else (),
        )
        self.proxies.append(proxy)
        self.weathers.append(weather)
        doors = []
        for address in self._bootstrap.split(","):
            name, _, port = address.strip().rpartition(":")
            doors.append(await proxy.open(name.strip("[]"), int(port)))
        return ",".join(doors)

    def assault(self) -> Assault:
        random = self._random("assault")
        if self.cluster is not None:
            return ClusterAssault(self._kinds, self.cluster, self.weathers, random, self._history, self.proxies)
        return Assault(self._kinds, self.nodes, self.weathers, random, self._history, self.proxies)

    async def close(self) -> None:
        """No process and no connection is left."""
        for proxy in self.proxies:
            await proxy.close()
        for node in self.nodes:
            node.close()
        if self.cluster is not None:
            self.cluster.close()
