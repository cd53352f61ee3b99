"""Our consumer as a reader of committed data that runs beside a workload, behind faults of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from client_workload import FAULTS_MAX

from client_world import ClientWorld
from semel.client.consumer.consumer import Consumer
from semel.client.errors import RetriableError
from semel.client.metadata import TopicPartition
from semel.sim.attack.fault_policy import drawn_faults

CATCH_UP_S = 3_600.0


class CommittedReader:
    """It reads whole partitions from their beginning, and remembers what it was given."""

    def __init__(self, world: ClientWorld, partitions: Iterable[TopicPartition]) -> None:
        random = world.random("reader")
        request_timeout_ms, fetch_max_wait_ms = random.choice([(1_000, 500), (5_000, 4_000), (30_000, 20_000)])
        settings: dict[str, Any] = {
            "request_timeout_ms": request_timeout_ms,
            "fetch_max_wait_ms": fetch_max_wait_ms,
            "fetch_max_bytes": random.choice([300, 2_000, 1 << 20]),
            "max_partition_fetch_bytes": random.choice([100, 1_000, 1 << 20]),
            "max_poll_records": random.choice([1, 3, 500]),
            "bootstrap_timeout_ms": 3_600_000,
        }
        self.read: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
        self._settings = settings
        self._faults = drawn_faults(random, most=FAULTS_MAX)
        self._world = world
        self._partitions = list(partitions)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        async with Consumer(
            host=self._world.host("reader"),
            bootstrap_servers=await self._world.behind(self._faults),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **self._settings,
        ) as consumer:
            consumer.assign(self._partitions)
            while True:
                try:
                    found = await consumer.getmany(timeout_ms=60_000)
                except RetriableError as error:
                    self._world.note(f"reader: {error!r}")
                    continue
                for partition, messages in found.items():
                    self.read.setdefault(partition, []).extend((message.offset, message.value) for message in messages)

    async def check(self, partition: TopicPartition, expected: list[tuple[int, bytes | None]]) -> None:
        """It gets to the end, and has been given what was expected, and nothing else, once and in order."""
        self._faults.calm()
        deadline_s = asyncio.get_running_loop().time() + CATCH_UP_S
        while len(self.read.get(partition, [])) < len(expected) and asyncio.get_running_loop().time() < deadline_s:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.5)
        assert self.read.get(partition, []) == expected, f"the reader of {partition}"

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
