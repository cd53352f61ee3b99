"""What tests of mixed clusters do and look at: topics with chosen replicas, who leads them, and their copies."""

from __future__ import annotations

import pytest

from mixed_cluster import KafkaNode, SemelNode, assert_same_batches, end_of, metadata_records, until
from raw_client import RawClient
from semel.cli.failures import Exit
from semel.cli.main import main
from semel.sync import Producer
from semel.wire.spec.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponsePartition
from semel.wire.spec.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord

CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"

Node = KafkaNode | SemelNode


def make_topic(port: int, name: str, *replicas: int) -> None:
    """One partition; the first of its replicas leads."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
    )
    with RawClient(port, timeout_s=60) as client:
        answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, CreateTopicsResponse)
    assert [(one.error_code, one.error_message) for one in answer.topics] == [(0, None)]


def partition_of(port: int, topic: str) -> MetadataResponsePartition | None:
    """What a broker tells of partition 0, or None if it knows none."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    with RawClient(port) as client:
        answer = client.call(request, 9, MetadataResponse)
    return next((one for found in answer.topics for one in found.partitions if one.partition_index == 0), None)


def led_with(port: int, topic: str, leader: int, *in_sync: int) -> bool:
    found = partition_of(port, topic)
    return found is not None and found.leader_id == leader and sorted(found.isr_nodes) == sorted(in_sync)


def last_fencing(node: Node, broker_id: int) -> tuple[int, int]:
    """How often a broker has registered, and what became of it last: 1 it was fenced, -1 unfenced."""
    records = metadata_records(node.data)
    registered = sum(isinstance(one, RegisterBrokerRecord) and one.broker_id == broker_id for one in records)
    changes = [
        one.fenced
        for one in records
        if isinstance(one, BrokerRegistrationChangeRecord) and one.broker_id == broker_id and one.fenced
    ]
    return registered, changes[-1] if changes else 1


def send(producer: Producer, topic: str, first: int, count: int) -> None:
    """Records whose values are their offsets: those from `first` on."""
    deliveries = [producer.send(topic, b"%d" % number) for number in range(first, first + count)]
    offsets = [delivery.result(90).offset for delivery in deliveries]
    assert offsets == list(range(first, first + count))


def same_on_both(one: Node, other: Node, topic: str, capsys: pytest.CaptureFixture[str], end: int) -> None:
    """The same batches, as seen here and by `semel log check --against`."""
    name = f"{topic}-0"
    until(lambda: all(end_of(node.data / name) >= end for node in (one, other)), f"both have {topic} up to {end}")
    assert_same_batches(one.data / name, other.data / name, at_least=end - 1)
    code = main(["log", "check", str(one.data / name), "--against", str(other.data / name)])
    said = capsys.readouterr()
    assert code == Exit.OK, said.out + said.err


def follows(one: Node, other: Node) -> None:
    """One has the metadata log that the other has now, byte for byte."""
    end = end_of(other.metadata_log)
    until(lambda: end_of(one.metadata_log) >= end, f"node {one.node_id} has followed the metadata to {end}")
    assert_same_batches(one.metadata_log, other.metadata_log, at_least=end - 1)
