"""The whole workload: plain and transactional producers, readers, groups and a pipeline on two topics."""

from __future__ import annotations

import asyncio

from semel.client.metadata import TopicPartition
from semel.sim.workload.access import CLOSE_S, Access
from semel.sim.workload.pipeline import Worker
from semel.sim.workload.producers import Transactor, write_plainly
from semel.sim.workload.readers import assigned_readers, finish_group, read_in_group
from semel.sim.workload.stage import READING, Stage

PROTOCOLS = ("classic", "consumer")
WRITING = "writing"
PIPING = "piping"


class Workload(Stage):
    def __init__(self, access: Access) -> None:
        super().__init__(access, [access.records_topic, access.results_topic])
        load, generations = access.load, access.generations
        self._writing_over = asyncio.Event()
        self._piping_over = asyncio.Event()
        protocols = PROTOCOLS if load.group_members else ()
        self._groups = {f"{access.name}-{protocol}": (protocol, asyncio.Event()) for protocol in protocols}
        self._pipeline_group = f"{access.name}-pipeline"
        self._transactors = [
            Transactor(access, f"transactor{generation}-{number}", generation)
            for generation in generations
            for number in range(load.transactors)
        ]
        self._workers = [
            Worker(access, f"worker-{number}", self._pipeline_group, generations[number % len(generations)])
            for number in range(load.pipeline_workers)
        ]
        self._readers = assigned_readers(access, self.topics)

    def start_all(self) -> None:
        access, load = self.access, self.access.load
        for number in range(load.plain_producers):
            writer = write_plainly(access, f"plain-{number}", self._writing_over, is_impatient=number % 2 == 1)
            self.start(WRITING, writer)
        for transactor in self._transactors:
            self.start(WRITING, transactor.run(self._writing_over))
        for worker in self._workers:
            self.start(PIPING, worker.run(self._piping_over))
        for reader in self._readers:
            self.start(READING, reader.run(self.reading_over))
        for group, (protocol, over) in self._groups.items():
            for number in range(load.group_members):
                self.start(group, read_in_group(access, f"{protocol}-{number}", group, protocol, over))

    async def wind_up(self) -> None:
        """Every transaction is ended, every reader gets to the end: of the records first, then of the results."""
        access = self.access
        self.set_phase("ending transactions")
        await self.end_writing()
        self.set_phase("reading to the end")
        offsets = await self.write_last(access.records_topic)
        await self.end_groups(offsets)
        offsets |= await self.write_last(access.results_topic)
        await self.read_to_end(offsets, self._readers)

    async def end_writing(self) -> None:
        self._writing_over.set()
        await self.finish(WRITING)
        for transactor in self._transactors:
            await end_what_is_open(transactor)

    async def end_groups(self, offsets: dict[TopicPartition, int]) -> None:
        """`offsets` are those of the last records: every group gets past them."""
        access = self.access
        for group, (_, over) in self._groups.items():
            await finish_group(access, group, offsets, False, over.set)
            await self.finish(group)
        if self._workers:
            await finish_group(access, self._pipeline_group, offsets, True, self._piping_over.set)
            await self.finish(PIPING)
        for worker in self._workers:
            name = f"{worker.name}-end"
            await end_what_is_open(Transactor(access, name, worker.generation, worker.transactional_id))


async def end_what_is_open(transactor: Transactor) -> None:
    """Whoever takes over an id ends the transaction that it finds."""
    _, producer = await transactor.take_over()
    await producer.close(timeout_s=CLOSE_S)
