"""The three semantics side by side: the same program, read, transform, write, under the same faults, in three ways.

At most once: nobody is waited for, and what was read counts as done before it is. At least once: everything is tried
again until it is acknowledged, and counts as done afterwards. Exactly once: transactions. In each way a source writes,
a worker reads and writes one result for each record, and sometimes dies at the worst moment.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from semel.client.consumer.consumer import Consumer
from semel.client.errors import AbortTransactionError, CommitFailed, RestartProducerError, RetriableError, SemelError
from semel.client.metadata import TopicPartition
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.client.values import Message
from semel.sim.history import NO_TRANSACTION, NO_VALUE, Client, History, Poll, Send
from semel.sim.judging.consumption import PIPELINE
from semel.sim.workload.access import CLOSE_S, Access, place_of
from semel.sim.workload.producers import Transactor
from semel.sim.workload.readers import POLL_MS, Rebalances, finish_group
from semel.sim.workload.recording import delivered, end, init, poll, send, value_of
from semel.sim.workload.stage import Stage

Batch = dict[TopicPartition, list[Message]]
DIES = 0.04
BATCH_MAX = 20


class Way(Enum):
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


PRODUCERS: dict[Way, Mapping[str, Any]] = {
    Way.AT_MOST_ONCE: {"acks": 0, "retries": 0, "enable_idempotence": False},
    Way.AT_LEAST_ONCE: {"acks": "all", "enable_idempotence": False},
    Way.EXACTLY_ONCE: {},
}


@dataclass
class Tally:
    """What became of the records of one way."""

    sent: int = 0
    lost: int = 0
    duplicated: int = 0


class Lane:
    """One way at work, in topics of its own."""

    def __init__(self, access: Access, way: Way) -> None:
        self.access = access
        self.way = way
        self.deaths = 0
        self._instances = 0
        self._random = access.random(way.value)

    @property
    def group(self) -> str:
        return f"{self.access.name}-{self.way.value}"

    @property
    def input_topic(self) -> str:
        return f"{self.group}-in"

    @property
    def output_topic(self) -> str:
        return f"{self.group}-out"

    def _client(self, process: str, role: str, **rest: Any) -> None:
        self.access.history.add_client(
            Client(
                process,
                role,
                is_idempotent=self.way is Way.EXACTLY_ONCE,
                waits_for_all=self.way is not Way.AT_MOST_ONCE,
                **rest,
            )
        )

    # -- the source

    async def write(self, over: asyncio.Event) -> None:
        access, random = self.access, self._random
        process = f"{self.way.value}-source"
        self._client(process, "source")
        producer = access.producer(process, **PRODUCERS[self.way])
        await producer.start()
        waiting: list[Delivery] = []
        try:
            while not over.is_set():
                for _ in range(random.randint(1, 5)):
                    partition = random.choice(access.partitions(self.input_topic))
                    waiting.append(await send(access, producer, process, partition, random))
                if len(waiting) > 20:
                    await delivered(waiting)
                    waiting.clear()
                await access.pause(random)
            await delivered(waiting)
        finally:
            await producer.close(timeout_s=CLOSE_S)

    # -- the worker

    async def work(self, over: asyncio.Event) -> None:
        """One life after the other. A worker that dies takes nothing with it and says nothing."""
        transactional_id = f"{self.group}-worker" if self.way is Way.EXACTLY_ONCE else None
        while not over.is_set():
            self._instances += 1
            process = f"{self.way.value}-worker.{self._instances}"
            self._client(process, PIPELINE, reads_committed=True, transactional_id=transactional_id, group=self.group)
            settings = {**PRODUCERS[self.way], "transactional_id": transactional_id}
            producer = self.access.producer(process, **settings)
            consumer = self.access.consumer(
                process,
                self.input_topic,
                listener=Rebalances(self.access.history, process),
                group_id=self.group,
                isolation_level="read_committed",
            )
            try:
                await producer.start()
                await consumer.start()
                if transactional_id is None or await init(self.access, producer, process):
                    await self._live(process, producer, consumer, over)
            finally:
                await consumer.close(timeout_s=CLOSE_S)
                await producer.close(timeout_s=0)

    async def _live(self, process: str, producer: Producer, consumer: Consumer, over: asyncio.Event) -> None:
        while not over.is_set():
            batch = await poll(self.access, consumer, process, timeout_ms=POLL_MS, max_records=BATCH_MAX)
            if not batch:
                continue
            dies = self._random.random() < DIES
            try:
                goes_on = await self._handle(process, producer, consumer, batch, dies=dies)
            except (RetriableError, RestartProducerError, CommitFailed):
                return
            if not goes_on:
                self.deaths += dies
                return

    async def _handle(self, process: str, producer: Producer, consumer: Consumer, batch: Batch, *, dies: bool) -> bool:
        if self.way is Way.AT_MOST_ONCE:
            await consumer.commit()
            if not dies:
                await delivered(await self._results(process, producer, batch))
            return not dies
        if self.way is Way.AT_LEAST_ONCE:
            for delivery in await self._results(process, producer, batch):
                await delivery
            if not dies:
                await consumer.commit()
            return not dies
        return await self._handle_in_transaction(process, producer, consumer, batch, dies=dies)

    async def _handle_in_transaction(
        self, process: str, producer: Producer, consumer: Consumer, batch: Batch, *, dies: bool
    ) -> bool:
        transaction = self.access.history.next_transaction()
        await producer.begin()
        is_commit = True
        try:
            await self._results(process, producer, batch, transaction)
            offsets = {partition: messages[-1].offset + 1 for partition, messages in batch.items()}
            await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        except AbortTransactionError:
            is_commit = False
        if dies:
            return False
        ended = await end(self.access, producer, process, transaction, is_commit=is_commit)
        return ended.is_committed and ended.is_usable  # else the next life goes on where the group has committed

    async def _results(
        self, process: str, producer: Producer, batch: Batch, transaction: int = NO_TRANSACTION
    ) -> list[Delivery]:
        access, random = self.access, self._random
        deliveries = []
        for messages in batch.values():
            for message in messages:
                partition = random.choice(access.partitions(self.output_topic))
                sent = send(
                    access,
                    producer,
                    process,
                    partition,
                    random,
                    transaction=transaction,
                    source=value_of(message),
                )
                try:
                    deliveries.append(await sent)
                except SemelError:
                    if self.way is not Way.AT_MOST_ONCE:
                        raise
        return deliveries

    # -- afterwards

    def tally(self, history: History) -> Tally:
        """From the history alone: what the source sent, and what can be read of it in the end."""
        inputs = {place_of(partition) for partition in self.access.partitions(self.input_topic)}
        outputs = {place_of(partition) for partition in self.access.partitions(self.output_topic)}
        source_of: dict[int, int] = {}
        sent: set[int] = set()
        found: set[tuple[str, int, int]] = set()
        for operation in history.operations:
            if isinstance(operation, Send) and operation.place in inputs and operation.process.endswith("-source"):
                sent.add(operation.value)
            elif isinstance(operation, Send) and operation.source != NO_VALUE:
                source_of[operation.value] = operation.source
            elif isinstance(operation, Poll) and operation.reads_committed:
                for place in outputs & operation.read.keys():
                    numbers = operation.read[place]
                    found.update(
                        (place, offset, value) for offset, value in zip(numbers[::2], numbers[1::2], strict=True)
                    )
        times = Counter(source_of[value] for _, _, value in found if value in source_of)
        lost = sum(value not in times for value in sent)
        return Tally(len(sent), lost, sum(count - 1 for value, count in times.items() if value in sent))


class Semantics(Stage):
    """Some of the ways at once, so that the same faults meet them."""

    def __init__(self, access: Access, ways: Sequence[Way]) -> None:
        self.lanes = [Lane(access, way) for way in ways]
        super().__init__(access, [topic for lane in self.lanes for topic in (lane.input_topic, lane.output_topic)])
        self._writing_over = asyncio.Event()
        self._working_over = {lane.way: asyncio.Event() for lane in self.lanes}

    def start_all(self) -> None:
        for lane in self.lanes:
            self.start("writing", lane.write(self._writing_over))
            self.start(lane.way.value, lane.work(self._working_over[lane.way]))

    async def wind_up(self) -> None:
        self.set_phase("reading to the end")
        self._writing_over.set()
        await self.finish("writing")
        ends: dict[TopicPartition, int] = {}
        for lane in self.lanes:
            offsets = await self.write_last(lane.input_topic)
            await finish_group(self.access, lane.group, offsets, True, self._working_over[lane.way].set)
            await self.finish(lane.way.value)
            if lane.way is Way.EXACTLY_ONCE:
                transactor = Transactor(
                    self.access, f"{lane.way.value}-end", self.access.generations[-1], f"{lane.group}-worker"
                )
                _, producer = await transactor.take_over()
                await producer.close(timeout_s=CLOSE_S)
            ends |= offsets | await self.write_last(lane.output_topic)
        await self.read_to_end(ends)

    def tallies(self) -> dict[Way, Tally]:
        return {lane.way: lane.tally(self.access.history) for lane in self.lanes}
