"""What a client knows of a cluster: its nodes, its topics, and who leads which partition. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.metadata import MetadataResponse, MetadataResponseTopic

NO_NODE = -1
NO_EPOCH = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"node {self.node_id} at {self.host}:{self.port}"


class Partition(NamedTuple):
    number: int
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error_code: int = 0


class Topic(NamedTuple):
    name: str
    topic_id: bytes = NO_UUID
    is_internal: bool = False
    partitions: Mapping[int, Partition] = MappingProxyType({})
    error_code: int = 0

    @property
    def is_usable(self) -> bool:
        return self.error_code == ErrorCode.NONE and bool(self.partitions)


class ClusterView(NamedTuple):
    """One answer to a metadata request, joined with what was known before."""

    nodes: dict[int, Node]
    topics: dict[str, Topic]
    controller_id: int = NO_NODE
    cluster_id: str | None = None


def read_nodes(answer: MetadataResponse) -> dict[int, Node]:
    return {node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in answer.brokers}


def read_topic(answered: MetadataResponseTopic, known: Topic | None) -> Topic:
    """A topic as answered, but for partitions of which we know a newer leader: the node asked may lag behind."""
    partitions = {}
    before = known.partitions if known is not None and known.topic_id == answered.topic_id else {}
    for entry in answered.partitions:
        partition = Partition(
            entry.partition_index,
            entry.leader_id,
            entry.leader_epoch,
            tuple(entry.replica_nodes),
            tuple(entry.isr_nodes),
            tuple(entry.offline_replicas),
            entry.error_code,
        )
        old = before.get(partition.number)
        if old is not None and old.leader_epoch > partition.leader_epoch != NO_EPOCH:
            partition = partition._replace(leader_id=old.leader_id, leader_epoch=old.leader_epoch)
        partitions[partition.number] = partition
    name = answered.name or ""
    return Topic(name, answered.topic_id, answered.is_internal, partitions, answered.error_code)
