"""The cluster that a check attacks: a controller and several brokers, processes of our own, with short sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from semel.client.admin.admin import Admin
from semel.client.errors import SemelError
from semel.host.api import Host
from semel.local.layout import data_path
from semel.local.local_cluster import LocalCluster
from semel.local.node_process import SERVE, NodeDied, NodeProcess, until_ready
from semel.sim.attack.cluster_faults import SESSION_MS, Members
from semel.sim.attack.local_node import SETTINGS

CLUSTER_SETTINGS = {
    **SETTINGS,
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
"""Factor and min.insync.replicas are those that a local cluster has by itself: 3 and 2."""
DIRECTORY = "cluster"
_ASK_S = 3.0
_LOOK_S = 0.2


class ClusterNode:
    """One node of it, for an attack."""

    def __init__(self, process: NodeProcess) -> None:
        self._process = process

    @property
    def name(self) -> str:
        return self._process.name

    async def kill(self) -> None:
        """Raises NodeDied for one that has ended by itself: a kill must not hide that."""
        self._check()
        self._process.kill()

    async def start(self) -> None:
        """One that runs is left alone. Raises NodeDied, also for one that has ended although nobody asked it to."""
        if self._process.is_running:
            return
        self._check()
        self._process.spawn()
        await until_ready([self._process])

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def _check(self) -> None:
        code = self._process.ended_with
        if code is not None:
            raise NodeDied(f"{self.name} ended with code {code}:\n{self._process.last_words()}")


class AttackedCluster:
    def __init__(self, host: Host, root: Path, brokers: int, *, command: Sequence[str] = SERVE) -> None:
        self._host = host
        self._local = LocalCluster(
            root / DIRECTORY, brokers=brokers, settings=CLUSTER_SETTINGS, can_cut=True, command=command
        )
        self.nodes: dict[int, ClusterNode] = {}

    @property
    def bootstrap_servers(self) -> str:
        return self._local.layout.bootstrap_servers

    @property
    def members(self) -> Members:
        layout = self._local.layout
        return Members(
            tuple(node.node_id for node in layout.brokers), tuple(node.node_id for node in layout.controllers)
        )

    async def start(self) -> None:
        """Returns when all nodes serve. Raises NodeDied; then `close` ends those that run."""
        self._local.open()
        self.nodes = {node_id: ClusterNode(process) for node_id, process in self._local.processes.items()}
        self._local.spawn()
        await self._local.until_ready()

    def cut(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._local.cuts.cut(pairs)

    def heal(self) -> None:
        """All links are whole again."""
        self._local.cuts.heal()

    async def leaders(self) -> dict[str, int]:
        """Who leads what, as far as somebody answers soon."""
        try:
            async with asyncio.timeout(_ASK_S), self._admin() as admin:
                topics = await admin.list_topics(include_internal=True)
        except (SemelError, TimeoutError):
            return {}
        return {
            f"{name}-{number}": partition.leader_id
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
        }

    async def until_in_sync(self, timeout_s: float) -> str:
        """Waits until every replica is in sync; what is still missing when the time is over, or an empty text."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            missing = await self._out_of_sync()
            if not missing or loop.time() >= deadline_s:
                return missing
            await asyncio.sleep(_LOOK_S)

    async def _out_of_sync(self) -> str:
        try:
            async with asyncio.timeout(_ASK_S), self._admin() as admin:
                topics = await admin.list_topics(include_internal=True)
        except (SemelError, TimeoutError) as error:
            return f"nobody tells: {error or 'no answer'}"
        return ", ".join(
            f"{name}-{number} has replicas {list(partition.replicas)} and in sync {list(partition.in_sync)}"
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if set(partition.replicas) != set(partition.in_sync)
        )

    def _admin(self) -> Admin:
        return Admin(host=self._host, bootstrap_servers=self.bootstrap_servers, client_id="attack")

    async def stop(self) -> list[Path]:
        """A clean stop of all nodes; their directories, which can be compared then. Raises NodeDied."""
        await asyncio.get_running_loop().run_in_executor(None, self._local.stop)
        return [data_path(self._local.root, node) for node in self._local.layout.nodes]

    def close(self) -> None:
        """No process is left."""
        self._local.close()
