"""Consume, transform, produce: what was read and what was written for it are one transaction, and one record out for
each record in is what must be there in the end, whatever is aborted, thrown out of the group, or dies."""

from __future__ import annotations

import asyncio

from semel.client.consumer.consumer import Consumer
from semel.client.errors import AbortTransactionError, RestartProducerError, RetriableError, SemelError
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.client.values import Message
from semel.sim.history import Client
from semel.sim.judging.consumption import PIPELINE
from semel.sim.workload.access import CLOSE_S, Access, place_of
from semel.sim.workload.readers import POLL_MS, Rebalances
from semel.sim.workload.recording import Ended, delivered, end, init, poll, send, value_of

ABORTS = 0.2
BEGINS_ANEW = 0.03
BATCH_MAX = 40

Batch = dict[TopicPartition, list[Message]]


class Worker:
    def __init__(self, access: Access, name: str, group: str, generation: int) -> None:
        self.access = access
        self.name = name
        self.group = group
        self.generation = generation
        self.transactional_id = f"{access.name}-{name}"
        self._random = access.random(name)
        self._instances = 0

    async def run(self, over: asyncio.Event) -> None:
        while not over.is_set():
            self._instances += 1
            process = f"{self.name}.{self._instances}"
            history = self.access.history
            client = Client(process, PIPELINE, True, transactional_id=self.transactional_id, group=self.group)
            history.add_client(client)
            producer = self.access.producer(process, self.generation, transactional_id=self.transactional_id)
            consumer = self.access.consumer(
                process,
                self.access.records_topic,
                listener=Rebalances(history, process),
                group_id=self.group,
                isolation_level="read_committed",
            )
            try:
                await producer.start()
                await consumer.start()
                if await init(self.access, producer, process):
                    await self._work(process, producer, consumer, over)
            finally:
                await consumer.close(timeout_s=CLOSE_S)
                await producer.close(timeout_s=CLOSE_S)

    async def _work(self, process: str, producer: Producer, consumer: Consumer, over: asyncio.Event) -> None:
        while not over.is_set():
            batch = await poll(self.access, consumer, process, timeout_ms=POLL_MS, max_records=BATCH_MAX)
            if not batch:
                continue
            is_commit = self._random.random() >= ABORTS
            ended = await self._transform(process, producer, consumer, batch, is_commit=is_commit)
            if not ended.is_usable or self._random.random() < BEGINS_ANEW:
                return
            if not ended.is_committed:
                await self._rewind(process, consumer, batch)

    async def _transform(
        self, process: str, producer: Producer, consumer: Consumer, batch: Batch, *, is_commit: bool
    ) -> Ended:
        access, random = self.access, self._random
        transaction = access.history.next_transaction()
        try:
            await producer.begin()
            deliveries = []
            for messages in batch.values():
                for message in messages:
                    partition = random.choice(access.partitions(access.results_topic))
                    source = value_of(message)
                    sent = send(access, producer, process, partition, random, transaction=transaction, source=source)
                    deliveries.append(await sent)
            offsets = {partition: messages[-1].offset + 1 for partition, messages in batch.items()}
            await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if random.random() < 0.3:
                await delivered(deliveries)
        except AbortTransactionError:
            is_commit = False
        except (RestartProducerError, RetriableError):
            return Ended(False, False)
        return await end(access, producer, process, transaction, is_commit=is_commit)

    async def _rewind(self, process: str, consumer: Consumer, batch: Batch) -> None:
        """Back to where the batch began: by what the worker knows, or by what the group has committed."""
        by_group = self._random.random() < 0.5
        for partition, messages in batch.items():
            offset = messages[0].offset
            try:
                if by_group:
                    offset = await consumer.committed(partition) or 0
                if partition in consumer.assignment():
                    consumer.seek(partition, offset)
                    self.access.history.move(process, {place_of(partition): offset})
            except SemelError:
                pass  # it is somebody else's by now
