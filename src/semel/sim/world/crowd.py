"""The clients of a run, each of which may die at any moment, without a word; somebody else goes on in its place."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from semel.sim.host import SimWorld
from semel.sim.loop import OWNER, SimLoop
from semel.sim.workload.access import CLOSE_S, Access
from semel.sim.workload.pipeline import Worker
from semel.sim.workload.producers import Transactor, write_plainly
from semel.sim.workload.readers import AssignedReader, assigned_readers, finish_group, read_in_group
from semel.sim.workload.run import PIPING, PROTOCOLS, WRITING
from semel.sim.workload.stage import READING, Stage
from semel.sim.world.side_topics import SideTopics

SIDE = "side topics"
KILLING_ROUNDS = 50

Make = Callable[[str], Coroutine[Any, Any, None]]
"""Given the name of a new life of a client."""


class Machines:
    """Which client runs on which machines, so that its death can be seen on the network."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.names: list[str] = []
        self.proxies: list[str] = []
        self._of_owner: dict[str, list[str]] = {}

    def host(self, name: str) -> Any:
        machine = f"{name}@{len(self.names) + 1}"
        self.names.append(machine)
        self._of_owner.setdefault(OWNER.get(), []).append(machine)
        return self.world.host(machine)

    def of(self, owner: str) -> list[str]:
        return self._of_owner.get(owner, [])


class Crowd(Stage):
    def __init__(self, access: Access, machines: Machines, side: SideTopics | None) -> None:
        super().__init__(access, [access.records_topic, access.results_topic])
        load, generations = access.load, access.generations
        self._machines = machines
        self._side = side
        self._lives: dict[str, str] = {}
        """Each client that may be killed, with the name of its present life."""
        self._deaths: dict[str, asyncio.Event] = {}
        self._over = {role: asyncio.Event() for role in (WRITING, PIPING, SIDE)}
        protocols = PROTOCOLS if load.group_members else ()
        self._groups = {f"{access.name}-{protocol}": (protocol, asyncio.Event()) for protocol in protocols}
        self._pipeline_group = f"{access.name}-pipeline"
        self._transactors = {
            f"transactor{generation}-{number}": generation
            for generation in generations
            for number in range(load.transactors)
        }
        self._workers = {
            f"worker-{number}": generations[number % len(generations)] for number in range(load.pipeline_workers)
        }
        self._readers = assigned_readers(access, self.topics)

    # -- who works

    def start_all(self) -> None:
        access, load = self.access, self.access.load
        for number in range(load.plain_producers):
            self._keep(WRITING, f"plain-{number}", lambda life: write_plainly(access, life, self._over[WRITING]))
        for name, generation in self._transactors.items():
            self._keep(WRITING, name, self._transactor(name, generation))
        for name, generation in self._workers.items():
            self._keep(PIPING, name, self._worker(name, generation))
        for group, (protocol, over) in self._groups.items():
            for number in range(load.group_members):
                self._keep(group, f"{protocol}-{number}", self._member(group, protocol, over))
        for reader in self._readers:
            self.start(READING, reader.run(self.reading_over))
        if self._side is not None:
            self.start(SIDE, self._side.run(self._over[SIDE]))

    def _transactor(self, name: str, generation: int) -> Make:
        access, transactional_id = self.access, f"{self.access.name}-{name}"
        return lambda life: Transactor(access, life, generation, transactional_id).run(self._over[WRITING])

    def _worker(self, name: str, generation: int) -> Make:
        def work(life: str) -> Coroutine[Any, Any, None]:
            worker = Worker(self.access, life, self._pipeline_group, generation)
            worker.transactional_id = f"{self.access.name}-{name}"
            return worker.run(self._over[PIPING])

        return work

    def _member(self, group: str, protocol: str, over: asyncio.Event) -> Make:
        return lambda life: read_in_group(self.access, life, group, protocol, over)

    def read_from_the_start(self) -> None:
        """Somebody comes late, and wants to know all that was."""
        name, is_committed = f"late-{len(self._readers)}", len(self._readers) % 2 == 0
        reader = AssignedReader(self.access, name, self.topics, reads_committed=is_committed)
        self._readers.append(reader)
        self.start(READING, reader.run(self.reading_over))

    async def wind_up(self) -> None:
        """Every transaction is ended, every reader gets to the end: of the records first, then of the results."""
        access = self.access
        self.set_phase("ending transactions")
        self._over[WRITING].set()
        await self.finish(WRITING)
        for name, generation in self._transactors.items():
            await self._end_what_is_open(name, generation)
        self.set_phase("reading to the end")
        offsets = await self.write_last(access.records_topic)
        for group, (_, over) in self._groups.items():
            await finish_group(access, group, offsets, False, over.set)
            await self.finish(group)
        if self._workers:
            await finish_group(access, self._pipeline_group, offsets, True, self._over[PIPING].set)
            await self.finish(PIPING)
        for name, generation in self._workers.items():
            await self._end_what_is_open(name, generation)
        offsets |= await self.write_last(access.results_topic)
        await self.read_to_end(offsets, self._readers)
        self._over[SIDE].set()
        await self.finish(SIDE)

    async def _end_what_is_open(self, name: str, generation: int) -> None:
        """Whoever takes over an id ends the transaction that it finds."""
        transactor = Transactor(self.access, f"{name}-end", generation, f"{self.access.name}-{name}")
        _, producer = await transactor.take_over()
        await producer.close(timeout_s=CLOSE_S)

    # -- who dies

    @property
    def mortals(self) -> list[str]:
        """Clients that are at work and may be killed, in the order in which they were started."""
        return list(self._lives)

    @property
    def workers(self) -> Collection[str]:
        """Those of the pipeline, alive or not."""
        return self._workers.keys()

    def owner_of(self, client: str) -> str:
        """Of all that its present life has started."""
        return self._lives[client]

    def machines_of(self, client: str) -> list[str]:
        return self._machines.of(self._lives[client])

    def kill(self, client: str) -> None:
        """At once: nothing is closed, and nobody is told anything but by the network."""
        life = self._lives[client]
        for machine in self._machines.of(life):
            self._machines.world.wires.crash(machine)
        self._deaths[life].set()

    def _keep(self, role: str, name: str, make: Make) -> None:
        self.start(role, self._live(name, make))

    async def _live(self, name: str, make: Make) -> None:
        """One life after the other, until one comes to its own end."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        number = 0
        while True:
            number += 1
            life = self._lives[name] = name if number == 1 else f"{name}~{number}"
            killed = self._deaths[life] = asyncio.Event()
            context = contextvars.copy_context()
            context.run(OWNER.set, life)
            work = loop.create_task(make(life), context=context)
            death = loop.create_task(killed.wait())
            try:
                await asyncio.wait([work, death], return_when=asyncio.FIRST_COMPLETED)
            finally:
                death.cancel()
                if killed.is_set() or not work.done():
                    await end_tasks(loop, life)
            if not killed.is_set():
                del self._lives[name]
                return work.result()


async def end_tasks(loop: SimLoop, owner: str) -> None:
    """Whatever somebody has started ends here, also what it starts in order to end well."""
    for _ in range(KILLING_ROUNDS):
        if not loop.end_owner(owner):
            return
        await asyncio.sleep(0)
