"""Read, transform, write, in the simulated world: workers share a group, and commit what they read with their output.

Workers die without a word and are started again, are thrown out of the group, lose answers. In the end every input has
exactly one output that a reader of committed data sees, in the order of the inputs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from client_reader import CommittedReader
from client_workload import TOPIC, broker_deaths, drawn_settings, number_of

from client_world import ClientWorld, batch_of
from semel.client.consumer.consumer import Consumer
from semel.client.errors import AbortTransactionError, RestartProducerError, RetriableError
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.client.values import Message

INPUT = "input"
GROUP = "workers"
FINISHED_WITHIN_S = 3_600.0


class PipelineRun:
    def __init__(self, world: ClientWorld) -> None:
        self.world = world
        self.random = random = world.random("workload")
        self.partitions = random.randint(1, 3)
        self.workers = random.randint(1, 2)
        self.records = random.randint(5, 60)
        self.commits = 0
        self.deaths_left = random.choice([0, 0, 1, 3])
        self.abandoned: list[Producer | Consumer] = []
        self.producer_settings = drawn_settings(random)
        session_timeout_ms = random.choice([6_000, 10_000])
        request_timeout_ms, fetch_max_wait_ms = random.choice([(2_000, 500), (2_000, 1_500), (10_000, 8_000)])
        self.consumer_settings: dict[str, Any] = {
            "group_protocol": random.choice(["classic", "consumer"]),
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": session_timeout_ms // 3,
            "max_poll_interval_ms": random.choice([12_000, 300_000]),
            "max_poll_records": random.choice([1, 5, 500]),
            "max_partition_fetch_bytes": random.choice([100, 1 << 20]),
            "request_timeout_ms": request_timeout_ms,
            "fetch_max_wait_ms": fetch_max_wait_ms,
            "retry_backoff_ms": random.choice([10, 100]),
            "bootstrap_timeout_ms": 3_600_000,
        }

    async def run(self) -> None:
        world = self.world
        await world.create_topic(TOPIC, self.partitions)
        await world.create_topic(INPUT, self.partitions)
        world.note(f"{self.workers} workers, {self.consumer_settings}, {self.producer_settings}")
        await self._fill_input()
        reader = CommittedReader(world, [TopicPartition(TOPIC, number) for number in range(self.partitions)])
        deaths = broker_deaths(world, self.random, 5.0)
        loop = asyncio.get_running_loop()
        workers = [loop.create_task(self._work(number)) for number in range(self.workers)]
        try:
            async with asyncio.timeout(FINISHED_WITHIN_S):
                while await self._outputs() < self.records:
                    for worker in workers:
                        if worker.done():
                            worker.result()
                    await asyncio.sleep(5)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        if deaths is not None:
            await deaths
        world.calm()
        for left in self.abandoned:
            await left.close(timeout_s=5)
        for number in range(self.workers):
            producer = await self._new_producer(number)
            await producer.close()
        await self._judge(reader)

    async def _fill_input(self) -> None:
        """Numbers, spread over the partitions, past the proxy: this part is not what is tested."""
        client = await self.world.node.client()
        spread = self.world.random("input")
        for number in range(self.records):
            partition = spread.randrange(self.partitions)
            answer = await client.produce(INPUT, batch_of(b"%d" % number), partition=partition)
            assert answer.error_code == 0
        client.close()

    async def _outputs(self) -> int:
        """How many there are, as far as anybody can tell while the broker may be down."""
        found = 0
        try:
            for partition in range(self.partitions):
                found += sum(record.is_committed is True for record in await self.world.logged(TOPIC, partition))
        except ConnectionError:
            return 0
        return found

    # -- a worker

    async def _work(self, number: int) -> None:
        while True:
            producer = await self._new_producer(number)
            consumer = Consumer(
                INPUT,
                host=self.world.host("consumer"),
                bootstrap_servers=self.world.address,
                group_id=GROUP,
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                **self.consumer_settings,
            )
            self.abandoned += [producer, consumer]
            await consumer.start()
            try:
                await self._live(producer, consumer)
                self.world.note(f"worker {number} dies without a word")
            except (RestartProducerError, RetriableError) as error:
                self.world.note(f"worker {number} begins anew: {error!r}")
                for ended in (producer, consumer):
                    self.abandoned.remove(ended)
                    await ended.close(timeout_s=5)

    async def _new_producer(self, number: int) -> Producer:
        while True:
            producer = Producer(
                host=self.world.host("producer"),
                bootstrap_servers=self.world.address,
                transactional_id=f"worker-{number}",
                **self.producer_settings,
            )
            await producer.start()
            try:
                await producer.init_transactions()
                return producer
            except (RestartProducerError, RetriableError) as error:
                self.world.note(f"init_transactions: {error!r}")
                await producer.close(timeout_s=5)

    async def _live(self, producer: Producer, consumer: Consumer) -> None:
        """Until its time has come."""
        while True:
            found = await consumer.getmany(timeout_ms=20_000)
            if not found:
                continue
            try:
                if not await self._transform(producer, consumer, found):
                    return
                self.commits += 1
            except AbortTransactionError as error:
                self.world.note(f"aborted: {error!r}")
                await self._insist_on_abort(producer)
                await self._rewind(consumer)

    async def _transform(
        self, producer: Producer, consumer: Consumer, found: dict[TopicPartition, list[Message]]
    ) -> bool:
        """One transaction; false if the worker has died before its end."""
        await producer.begin()
        for partition, messages in found.items():
            for message in messages:
                await producer.send(TOPIC, b"%s of %d" % (message.value, partition.partition), partition=partition[1])
                if self.random.random() < 0.02:  # perhaps for so long that the group goes on without it
                    await asyncio.sleep(self.random.uniform(0, 30))
        if self.deaths_left and self.random.random() < 0.3:
            self.deaths_left -= 1
            return False
        positions = {partition: messages[-1].offset + 1 for partition, messages in found.items()}
        await producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        while True:
            try:
                await producer.commit()
                return True
            except RetriableError as error:
                self.world.note(f"once more: {error!r}")

    async def _insist_on_abort(self, producer: Producer) -> None:
        while True:
            try:
                await producer.abort()
                return
            except RetriableError as error:
                self.world.note(f"abort once more: {error!r}")

    @staticmethod
    async def _rewind(consumer: Consumer) -> None:
        """What was read counts for nothing: on from what is committed."""
        for partition in consumer.assignment():
            committed = await consumer.committed(partition)
            if partition in consumer.assignment():
                consumer.seek(partition, committed or 0)

    # -- afterwards

    async def _judge(self, reader: CommittedReader) -> None:
        for partition in range(self.partitions):
            inputs = [number_of(record.value) for record in await self.world.logged(INPUT, partition)]
            records = await self.world.logged(TOPIC, partition)
            assert all(record.is_committed is not None for record in records), "nothing is left open"
            shown = [record for record in records if record.is_committed]
            outputs = [number_of(record.value) for record in shown]
            assert outputs == inputs, f"partition {partition}: {inputs} became {outputs}"
            await reader.check(TopicPartition(TOPIC, partition), [(record.offset, record.value) for record in shown])
        await reader.close()
