"""Three nodes of Apache Kafka that are one cluster: every topic on all of them, and two are enough to go on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apache_kafka import ApacheKafka
from raw_client import RawClient
from semel.sync import Admin
from semel.wire.spec.metadata import MetadataRequest, MetadataResponse

NODES = 3
WHOLE_TIMEOUT_S = 120.0


class MemberNode(ApacheKafka):
    """One of several. It is ready when it is among those who answer."""

    def __init__(self, root: Path, node_id: int) -> None:
        super().__init__(root, offsets_partitions=4, transaction_partitions=4)
        self.node_id = node_id

    def join(self, members: list[MemberNode]) -> None:
        """Before the first start: who the others are."""
        voters = ",".join(f"{node.node_id}@{node.address_of('CONTROLLER')}" for node in members)
        replicas, in_sync = str(len(members)), str(len(members) - 1)
        self._settings |= {
            "node.id": str(self.node_id),
            "controller.quorum.voters": voters,
            "auto.create.topics.enable": "false",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }

    def _answers(self) -> bool:
        try:
            with RawClient(self.port, timeout_s=5) as client:
                answer = client.call(MetadataRequest(topics=[]), 9, MetadataResponse)
        except OSError:
            return False
        return self.port in [broker.port for broker in answer.brokers]


class KafkaCluster:
    """Use with `with`: at its end no process of it is left."""

    def __init__(self, root: Path) -> None:
        self.nodes = [MemberNode(root / f"node-{number}", number) for number in range(1, NODES + 1)]
        for node in self.nodes:
            node.join(self.nodes)

    @property
    def address(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def __enter__(self) -> KafkaCluster:
        try:
            # None of them answers before most of them are there.
            with ThreadPoolExecutor(NODES) as starting:
                list(starting.map(lambda node: node.start(), self.nodes))
        except BaseException:
            self.reap()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.reap()

    def reap(self) -> None:
        for node in self.nodes:
            node.reap()

    def leader_of(self, topic: str) -> MemberNode:
        """Of partition 0."""
        with Admin(bootstrap_servers=self.address) as admin:
            leader_id = admin.describe_topics(topic)[topic].partitions[0].leader_id
        return next(node for node in self.nodes if node.node_id == leader_id)

    def wait_until_whole(self, *topics: str) -> None:
        """Until all nodes have all that was written: then any one of them may be killed."""
        deadline = time.monotonic() + WHOLE_TIMEOUT_S
        with Admin(bootstrap_servers=self.address) as admin:
            while True:
                found = admin.describe_topics(topics)
                partitions = [partition for topic in found.values() for partition in topic.partitions.values()]
                if all(len(partition.in_sync) == NODES for partition in partitions):
                    return
                assert time.monotonic() < deadline, f"replicas do not catch up: {partitions}"
                time.sleep(0.2)
