"""Brokers die and come back, and a controller elects: what was acknowledged is there in the end, on all of them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from cluster_harness import Cluster, ClusterNode, in_a_cluster, until

from semel.log.errors import Refused
from semel.log.log import Log
from semel.records.batch import whole_batches
from semel.records.build import build_batch
from semel.records.read import read_records
from semel.replication.partition import Partition
from semel.sim.clock import WALL_START_MS

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.segment.bytes": "4000",
}
PARTITIONS = 3


class Story:
    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.up: dict[int, bool] = {node.node_id: True for node in cluster.brokers}
        self.acknowledged: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self.sequences: dict[tuple[int, int], int] = {}
        self.is_over = False

    def state(self, index: int) -> Any:
        return self.cluster.controller.broker.image.topics["t"].partitions[index]

    def node(self, node_id: int) -> ClusterNode:
        return next(node for node in self.cluster.brokers if node.node_id == node_id)

    def log(self, node_id: int, index: int) -> Log:
        return self.node(node_id).broker.topics.log("t", index)

    def led(self, index: int) -> Partition | None:
        leader = self.state(index).leader
        if leader < 0 or not self.up[leader]:
            return None
        try:
            return self.node(leader).broker.topics.partition("t", index)
        except Refused:
            return None

    async def write(self, index: int, name: int) -> None:
        """An idempotent producer that tries a batch again until it is acknowledged."""
        producer = 1000 * (index + 1) + name
        sequence = 0
        while not self.is_over:
            value = b"%d-%d" % (producer, sequence)
            while not self.is_over:
                try:
                    async with asyncio.timeout(2):
                        if await self._try(index, producer, sequence, value):
                            self.acknowledged[index].append(value)
                            sequence += 1
                            break
                except (Refused, TimeoutError, OSError):
                    pass
                await asyncio.sleep(0.05)
            await asyncio.sleep(self.random.uniform(0, 0.1))

    async def _try(self, index: int, producer: int, sequence: int, value: bytes) -> bool:
        partition = self.led(index)
        if partition is None:
            return False
        leader = self.state(index).leader
        batch = build_batch(
            [value],
            base_timestamp_ms=WALL_START_MS,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        broker = self.node(leader).broker
        appended = partition.append(partition.validate(batch), -1)
        committed = partition.when_committed(appended.last_offset)
        if committed is not None:
            await committed
        return self.up[leader] and self.node(leader).broker is broker

    async def befall(self) -> None:
        chance = self.random
        node = chance.choice(self.cluster.brokers)
        others = [one for one in self.up if one != node.node_id and self.up[one]]
        if self.up[node.node_id] and len(others) == 2:
            self.up[node.node_id] = False
            await (node.kill() if chance.random() < 0.5 else node.lose_power())
        elif not self.up[node.node_id]:
            await self.raise_again(node)

    async def raise_again(self, node: ClusterNode) -> None:
        await node.start()
        self.up[node.node_id] = True

    async def until_equal(self, index: int) -> None:
        ids = list(self.up)

        def are_equal() -> bool:
            if set(self.state(index).isr) != set(ids):
                return False
            ends = {(log.end_offset, log.high_watermark) for log in (self.log(one, index) for one in ids)}
            return len(ends) == 1 and next(iter(ends))[0] == next(iter(ends))[1]

        try:
            await until(are_equal, within_s=120)
        except TimeoutError:
            ends = [(one, self.log(one, index).end_offset, self.log(one, index).high_watermark) for one in ids]
            raise AssertionError(f"{ends} {self.state(index)}") from None
        assert len({contents(self.log(one, index)) for one in ids}) == 1

    def judge(self, index: int) -> None:
        data = contents(self.log(next(iter(self.up)), index))
        values = [
            record.value
            for at, header in whole_batches(data)
            for record in read_records(memoryview(data)[at : at + header.size_bytes], header)
        ]
        assert len(values) == len(set(values)), "something is there twice"
        missing = [value for value in self.acknowledged[index] if value not in values]
        assert not missing, f"partition {index}: {len(missing)} of {len(self.acknowledged[index])} are lost"


def contents(log: Log) -> bytes:
    return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in log.segments)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_acknowledged_is_there_once_whoever_dies(seed: int) -> None:
    @in_a_cluster(brokers=3, settings=SETTINGS, seed=seed)
    async def survive(cluster: Cluster) -> None:
        client = await cluster.brokers[0].client()
        made = await client.create_topic("t", PARTITIONS)
        assert (made.error_code, made.replication_factor) == (0, 3)
        await cluster.same_metadata()
        story = Story(cluster, seed)
        writers = [asyncio.ensure_future(story.write(index, name)) for index in range(PARTITIONS) for name in range(2)]
        for _ in range(20):
            await asyncio.sleep(story.random.uniform(0.1, 6))
            await story.befall()
        for node in cluster.brokers:
            if not story.up[node.node_id]:
                await story.raise_again(node)
        await asyncio.sleep(5)
        story.is_over = True
        await asyncio.gather(*writers)
        for index in range(PARTITIONS):
            await story.until_equal(index)
            story.judge(index)
            assert len(story.acknowledged[index]) > 50, "hardly anything was acknowledged"

    survive()
