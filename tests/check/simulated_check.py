"""The workload of `semel check` in the simulated world: our broker, proxies with weather, an assault, one seed."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Sequence
from dataclasses import replace

from client_world import BROKER, ClientWorld
from semel.sim.attack.assault import Assault, FaultKind
from semel.sim.attack.local_node import SETTINGS
from semel.sim.attack.weather import Weather
from semel.sim.history import History
from semel.sim.workload.access import FIRST_GENERATION, SECOND_GENERATION, Access, Load
from semel.sim.workload.run import Workload
from semel.sim.workload.stage import Stage

SMALL = Load(
    partitions=2,
    plain_producers=2,
    transactors=1,
    group_members=1,
    pipeline_workers=2,
    patience_s=15,
    pause_s=(0.0, 0.1),
)


def load_of(**clients: int) -> Load:
    """These clients, and no others."""
    nobody = dict.fromkeys(
        ("plain_producers", "transactors", "assigned_readers", "group_members", "pipeline_workers"), 0
    )
    return replace(SMALL, **{**nobody, **clients})


class SimulatedNode:
    """The broker as something to be attacked. A pause is a network that stands still."""

    name = "broker"

    def __init__(self, world: ClientWorld) -> None:
        self._world = world
        self._is_up = True

    async def kill(self) -> None:
        self._world.sim.kill(BROKER)
        self._is_up = False

    async def start(self) -> None:
        if not self._is_up:
            await self._world.node.start()
            self._is_up = True

    def pause(self) -> None:
        self._world.sim.wires.part([BROKER], [f"proxy{number}" for number in range(len(self._world.proxies))])

    def resume(self) -> None:
        self._world.sim.wires.heal()


def simulated_check(
    seed: int,
    seconds: float,
    kinds: Sequence[FaultKind] = tuple(FaultKind),
    load: Load = SMALL,
    stage: Callable[[Access], Stage] = Workload,
) -> Stage:
    """The stage when all is over; its history is in `access`."""
    second = Weather(random_module.Random(f"{seed}/second"))
    world = ClientWorld(seed, second, settings=SETTINGS)
    history = History(lambda: round(world.loop.time() * 1000))
    stages: list[Stage] = []

    async def scenario(world: ClientWorld) -> None:
        first = Weather(random_module.Random(f"{seed}/first"))
        world.generation = 1
        addresses = {FIRST_GENERATION: await world.behind(first), SECOND_GENERATION: world.address}
        access = Access(history, world.host, addresses, world.random, load=load)
        nodes, weathers = [SimulatedNode(world)], [first, second]
        assault = Assault(kinds, nodes, weathers, world.random("assault"), history, world.proxies)
        stages.append(stage(access))
        await stages[0].run(seconds, attack=assault.run, heal=assault.heal)

    world.run(scenario)
    return stages[0]
