"""Several nodes in one simulated world: a controller of its own, and brokers that follow its metadata log."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, cast

from broker_harness import NO_PAUSE, RawClient

from semel.broker.broker import Broker
from semel.broker.identity import Identity, new_id, write_identity
from semel.config import BrokerConfig
from semel.sim.disk import SimDisk
from semel.sim.host import SimWorld
from semel.sim.loop import OWNER, SimLoop, run

ROOT = "/data"
CLIENTS_PORT, CONTROLLER_PORT, BROKERS_PORT = 9092, 9093, 9094
CONTROLLER = 1
METADATA_DIRECTORY = f"{ROOT}/__cluster_metadata-0"


def name_of(node_id: int) -> str:
    return f"node{node_id}"


class ClusterNode:
    """A node that is started, stopped, killed and cut off. Its tasks end with it."""

    def __init__(self, world: SimWorld, node_id: int, settings: Mapping[str, str], cluster_id: str) -> None:
        self.world = world
        self.node_id = node_id
        self.name = name_of(node_id)
        self.settings = {"log.dir": ROOT, "node.id": str(node_id), **settings}
        self.broken: list[BaseException] = []
        self._broker: Broker | None = None
        self._starts = 0
        self._clients = 0
        self.disk.make_dirs(ROOT)
        write_identity(self.disk, ROOT, Identity(cluster_id, node_id, new_id(Random(node_id))))
        self.disk.sync_parents_now(ROOT)

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    @property
    def disk(self) -> SimDisk:
        return self.world.disk(self.name)

    async def start(self) -> Broker:
        self._starts += 1
        context = contextvars.copy_context()
        context.run(OWNER.set, self._owner)
        config = BrokerConfig(self.settings)
        broker = self._broker = context.run(Broker, self.world.host(self.name), config, self.broken.append)
        await asyncio.get_running_loop().create_task(broker.start(), context=context)
        return broker

    @property
    def _owner(self) -> str:
        return f"{self.name}#{self._starts}"

    async def stop(self) -> None:
        context = contextvars.copy_context()
        context.run(OWNER.set, self._owner)
        await asyncio.get_running_loop().create_task(self.broker.stop(), context=context)
        assert not self.world.loop.unfinished_tasks(self._owner), "a clean stop leaves no task behind"
        self.world.kill(self.name)

    async def kill(self) -> None:
        """kill -9: what it was about to do is not done."""
        self.world.kill(self.name)
        await self._end_tasks()

    async def lose_power(self) -> None:
        self.world.lose_power(self.name)
        await self._end_tasks()

    async def _end_tasks(self) -> None:
        tasks = self.world.loop.unfinished_tasks(self._owner)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def client(self, port: int = CLIENTS_PORT) -> RawClient:
        self._clients += 1
        host = self.world.host(f"client{self._clients} of {self.name}")
        return RawClient(await host.network.connect(self.name, port))


class Cluster:
    def __init__(
        self, world: SimWorld, brokers: int, settings: Mapping[str, str], of_nodes: Mapping[int, Mapping[str, str]]
    ) -> None:
        self.world = world
        self.cluster_id = new_id(Random(99))
        common = {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{CONTROLLER}@{name_of(CONTROLLER)}:{CONTROLLER_PORT}",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "default.replication.factor": "1",
            "min.insync.replicas": "1",
            **settings,
        }
        controller = {
            **common,
            "process.roles": "controller",
            "listeners": f"CONTROLLER://:{CONTROLLER_PORT}",
            "advertised.listeners": f"CONTROLLER://{name_of(CONTROLLER)}:{CONTROLLER_PORT}",
        }
        del controller["inter.broker.listener.name"]
        self.controller = self._node(CONTROLLER, {**controller, **of_nodes.get(CONTROLLER, {})})
        self.brokers = [
            self._node(node_id, {**common, **_of_a_broker(node_id), **of_nodes.get(node_id, {})})
            for node_id in range(2, 2 + brokers)
        ]

    def _node(self, node_id: int, settings: Mapping[str, str]) -> ClusterNode:
        return ClusterNode(self.world, node_id, settings, self.cluster_id)

    async def start(self) -> None:
        await self.controller.start()
        for broker in self.brokers:
            await broker.start()

    async def same_metadata(self) -> None:
        """Waits until every broker has all that the controller has."""
        await until(
            lambda: all(
                one.broker.metadata.next_offset == self.controller.broker.metadata.next_offset for one in self.brokers
            )
        )


def _of_a_broker(node_id: int) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "listeners": f"CLIENTS://:{CLIENTS_PORT},INSIDE://:{BROKERS_PORT}",
        "advertised.listeners": f"CLIENTS://{name_of(node_id)}:{CLIENTS_PORT},INSIDE://{name_of(node_id)}:{BROKERS_PORT}",
    }


async def until(is_so: Callable[[], bool], within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110  what is waited for is many things
            await asyncio.sleep(0.01)


Test = Callable[..., Coroutine[Any, Any, None]]


def in_a_cluster(
    *,
    brokers: int = 2,
    settings: Mapping[str, str] | None = None,
    of_nodes: Mapping[int, Mapping[str, str]] | None = None,
    starts: bool = True,
    seed: int = 1,
) -> Callable[[Test], Callable[..., None]]:
    """Runs `async def test(cluster, ...)` in virtual time, with a controller and brokers that run already."""

    def decorate(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def in_virtual_time(**arguments: Any) -> None:
            loop = SimLoop(end_s=3600 * 24)
            world = SimWorld(loop, seed, flush_latency_ms=NO_PAUSE)
            cluster = Cluster(world, brokers, settings or {}, of_nodes or {})

            async def scenario() -> None:
                if starts:
                    await cluster.start()
                await test(cluster, **arguments)
                for node in (cluster.controller, *cluster.brokers):
                    assert not node.broken, (node.name, node.broken)

            run(scenario(), loop=loop)

        signature = inspect.signature(test)
        kept = list(signature.parameters.values())[1:]
        cast(Any, in_virtual_time).__signature__ = signature.replace(parameters=kept)
        return in_virtual_time

    return decorate
