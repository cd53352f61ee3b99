"""Transactions in a cluster of three brokers: who coordinates, who leads what is written to, and changes of both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

from broker_harness import RawClient
from cluster_harness import Cluster, ClusterNode, until
from transaction_harness import TOPIC, TransactionalProducer, committed_part, committed_values

from semel.broker.remote_joins import RemoteJoins
from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import Transaction
from semel.wire.primitives import coordinator_partition
from semel.wire.spec.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from semel.wire.spec.metadata_records import PartitionChangeRecord

# Few partitions of the coordinators: each of three nodes leads two or so.
FEW = {
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
    # A leader that a test has moved stays where it is.
    "auto.leader.rebalance.enable": "false",
}

# What a coordinator decides is committed without the other nodes.
ONE_REPLICA = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}


class Across:
    """The cluster, and what is asked about it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = {node.node_id: node for node in cluster.brokers}

    async def prepared(self, replicas: int = 1) -> None:
        """One topic of data with three partitions, number n on broker n + 2 first; the coordinators' topics."""
        client = await self.cluster.brokers[0].client()
        ids = sorted(self.nodes)
        assignments = [
            CreatableReplicaAssignment(
                partition_index=index, broker_ids=[ids[(index + more) % len(ids)] for more in range(replicas)]
            )
            for index in range(len(ids))
        ]
        topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments)
        made = (await client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics[0]
        assert made.error_code == 0, made.error_message
        for name in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC):
            await self.cluster.brokers[0].broker.roles.internal_topics.ensure(name)
        await self.cluster.same_metadata()
        await until(lambda: all(self._is_led(name) for name in (TOPIC, TRANSACTIONS_TOPIC, OFFSETS_TOPIC)))
        client.close()

    def _is_led(self, topic: str) -> bool:
        states = self.image.topics[topic].partitions
        return all((topic, index) in self.nodes[one.leader].broker.topics._online for index, one in states.items())

    @property
    def image(self) -> Any:
        return self.cluster.controller.broker.image

    def leader(self, topic: str, index: int) -> int:
        leader: int = self.image.topics[topic].partitions[index].leader
        return leader

    def place(self, name: str, topic: str = TRANSACTIONS_TOPIC) -> int:
        return coordinator_partition(name, len(self.image.topics[topic].partitions))

    def coordinator(self, name: str, topic: str = TRANSACTIONS_TOPIC) -> ClusterNode:
        return self.nodes[self.leader(topic, self.place(name, topic))]

    def name_on(self, node_id: int, topic: str = TRANSACTIONS_TOPIC, *, nth: int = 0) -> str:
        """A transactional id or group that this node coordinates."""
        names = (f"id-{number}" for number in count())
        here = (name for name in names if self.coordinator(name, topic).node_id == node_id)
        return next(islice(here, nth, None))

    def known(self, name: str) -> Transaction | None:
        """What its coordinator has loaded: to look does not make it load."""
        shard = self.coordinator(name).broker.transactions.shards._loaded.get(self.place(name))
        return None if shard is None else shard.state.by_id[name]

    def state(self, name: str) -> TransactionState | None:
        known = self.known(name)
        return None if known is None else known.state

    async def move(self, topic: str, index: int, leader: int) -> None:
        """Returns when every node knows of it."""
        topic_id = self.image.topics[topic].topic_id
        change = PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader)
        await self.cluster.controller.broker.controller.metadata.write([change])
        await self.cluster.same_metadata()

    async def producer(self, name: str, versions: dict[str, int]) -> Producer:
        client = await self.coordinator(name).client()
        producer = Producer(self, client, versions, name)
        assert await producer.init() == 0
        return producer

    async def read_committed(self, partition: int) -> list[bytes | None]:
        client = await self.nodes[self.leader(TOPIC, partition)].client()
        part = await committed_part(client, 0, partition)
        client.close()
        return committed_values(part)


class Producer(TransactionalProducer):
    """Writes to the leaders of partitions, and asks its coordinator for all else."""

    def __init__(self, across: Across, client: RawClient, versions: dict[str, int], name: str) -> None:
        super().__init__(client, versions, name)
        self._across = across
        self._leaders: dict[int, RawClient] = {}

    async def to_leader(self, partition: int) -> RawClient:
        leader = self._across.leader(TOPIC, partition)
        if leader not in self._leaders:
            self._leaders[leader] = await self._across.nodes[leader].client()
        return self._leaders[leader]

    async def send_to_leader(self, batch: bytearray, partition: int) -> int:
        answer = await self.send(batch, partition=partition, on=await self.to_leader(partition))
        return int(answer.error_code)

    async def write_to(self, partition: int, *values: bytes) -> int:
        return await self.send_to_leader(self.batch(*values, partition=partition), partition)


@contextmanager
def counted_questions() -> Iterator[list[tuple[str, bool]]]:
    """What coordinators on other nodes are asked: the transactional id, and whether only to verify."""
    asked: list[tuple[str, bool]] = []
    ask = RemoteJoins.ask

    async def counted(self: RemoteJoins, node_id: int, name: str, *rest: Any, verify_only: bool) -> Any:
        asked.append((name, verify_only))
        return await ask(self, node_id, name, *rest, verify_only=verify_only)

    RemoteJoins.ask = counted  # type: ignore[method-assign,assignment]
    try:
        yield asked
    finally:
        RemoteJoins.ask = ask  # type: ignore[method-assign]


async def soon(seconds: float = 0.2) -> None:
    await asyncio.sleep(seconds)
