"""`semel.transform` in the simulated world: the same workers as in `client_pipeline`, but the loop is the client's own.

What must hold is what the word says: each input once and in order, at least once, or at most once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from client_pipeline import INPUT, PipelineRun
from client_reader import CommittedReader
from client_workload import PATIENCE_MS, TOPIC, number_of

from client_world import ClientWorld
from semel.client.consumer.consumer import Consumer
from semel.client.producer.producer import Producer
from semel.client.transform import Guarantee, Transform, transform

QUIET_S = 120.0
"""Longer than a session: if nothing has come for so long, nothing will."""


class TransformRun(PipelineRun):
    word: Guarantee = "exactly_once"

    async def _live(self, producer: Producer, consumer: Consumer) -> None:
        """Until its time has come. A loop that was left goes on where it was."""
        loop = transform(consumer, producer, self.word, max_attempts=1_000)
        while await self._went_on(loop, producer):
            self.world.note("the loop was left, and is begun again")

    async def _went_on(self, loop: Transform, producer: Producer) -> bool:
        """False if the worker has died."""
        async for batch in loop:
            for message in batch:
                partition = message.partition
                await producer.send(TOPIC, b"%s of %d" % (message.value, partition), partition=partition)
                if self.random.random() < 0.02:  # perhaps for so long that the group goes on without it
                    await asyncio.sleep(self.random.uniform(0, 30))
            if self.deaths_left and self.random.random() < 0.3:
                self.deaths_left -= 1
                return False
            if self.random.random() < 0.05:
                break
        return True


class PlainTransformRun(TransformRun):
    """Without transactions. What is sent counts when it is written, so only how often is judged, not the order."""

    def __init__(self, world: ClientWorld) -> None:
        super().__init__(world)
        self.word = "at_least_once" if world.sim.seed % 2 else "at_most_once"
        self._seen = (-1, 0.0)

    async def _new_producer(self, number: int) -> Producer:
        settings: dict[str, Any] = {**self.producer_settings, "delivery_timeout_ms": PATIENCE_MS}
        producer = Producer(host=self.world.host("producer"), bootstrap_servers=self.world.address, **settings)
        await producer.start()
        return producer

    async def _outputs(self) -> int:
        """As many as there are, at least once; at most once, until no more come."""
        values: set[bytes | None] = set()
        try:
            for partition in range(self.partitions):
                values |= {record.value for record in await self.world.logged(TOPIC, partition)}
        except ConnectionError:
            return 0
        now_s = asyncio.get_running_loop().time()
        if len(values) != self._seen[0]:
            self._seen = len(values), now_s
        is_quiet = self.word == "at_most_once" and now_s - self._seen[1] > QUIET_S
        return self.records if is_quiet else len(values)

    async def _judge(self, reader: CommittedReader) -> None:
        await reader.close()
        for partition in range(self.partitions):
            inputs = [number_of(record.value) for record in await self.world.logged(INPUT, partition)]
            outputs = Counter(number_of(record.value) for record in await self.world.logged(TOPIC, partition))
            if self.word == "at_least_once":
                assert outputs.keys() == set(inputs), f"partition {partition}: {inputs} became {outputs}"
            else:
                assert set(inputs) >= outputs.keys(), f"partition {partition}: {inputs} became {outputs}"
                assert set(outputs.values()) <= {1}, f"partition {partition}: {outputs}"
