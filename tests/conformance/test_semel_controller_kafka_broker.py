"""A controller of semel, and brokers of both kinds: Apache Kafka follows its metadata, registers, has its requests sent
on in envelopes, leads and follows. `make conformance` runs it; SEMEL_KAFKA_VERSION chooses the version of Kafka.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from neighbour_steps import (
    CLUSTER_TOOL,
    CONFIGS,
    ELECTION,
    FEATURES,
    QUORUM,
    TOPICS,
    follows,
    last_fencing,
    led_with,
    make_topic,
    same_on_both,
    send,
)

import apache_kafka
from mixed_cluster import KafkaNode, MixedCluster, SemelNode, run_java, until
from raw_client import RawClient
from semel.cli.failures import Exit
from semel.cli.main import main
from semel.sync import Producer
from semel.wire.spec.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

CONTROLLER_ID, SEMEL, KAFKA = 3000, 1, 2
# None: what a cluster of semel begins at.
RELEASES = ("3.3-IV3", None)
_TOPIC = 2
_SNAPSHOT_AFTER_BYTES = 20 << 20

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(apache_kafka.skip_reason() is not None, reason=str(apache_kafka.skip_reason())),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("mixed cluster"),
]


@pytest.fixture(scope="module", params=RELEASES)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """The controller of semel and the broker of Kafka; a broker of semel joins when a test needs it."""
    cluster = MixedCluster(tmp_path_factory.mktemp("mixed"), release=request.param)
    try:
        cluster.start(cluster.semel(CONTROLLER_ID, "controller"), cluster.kafka(KAFKA, "broker"))
        yield cluster
    finally:
        cluster.reap()


@pytest.fixture
def controller(cluster: MixedCluster) -> SemelNode:
    node = cluster.nodes[CONTROLLER_ID]
    assert isinstance(node, SemelNode)
    if not node.is_running:
        cluster.start(node)
    return node


@pytest.fixture
def kafka(cluster: MixedCluster) -> KafkaNode:
    node = cluster.nodes[KAFKA]
    assert isinstance(node, KafkaNode)
    if not node.is_running:
        cluster.start(node)
    return node


@pytest.fixture
def semel(cluster: MixedCluster) -> SemelNode:
    node = cluster.nodes.get(SEMEL) or cluster.semel(SEMEL, "broker")
    assert isinstance(node, SemelNode)
    if not node.is_running:
        cluster.start(node)
    return node


def test_a_broker_of_kafka_registers_and_follows_the_metadata(controller: SemelNode, kafka: KafkaNode) -> None:
    assert last_fencing(controller, KAFKA) == (1, -1)
    follows(kafka, controller)
    server = ("--bootstrap-server", kafka.address)
    listed = run_java(CLUSTER_TOOL, "list-endpoints", *server, "--include-fenced-brokers")
    assert "unfenced" in listed.lower()
    status = run_java(QUORUM, *server, "describe", "--status")
    assert f"LeaderId:               {CONTROLLER_ID}" in status
    replication = run_java(QUORUM, *server, "describe", "--replication")
    rows = {line.split()[0]: line.split()[-1] for line in replication.splitlines()[1:] if line.strip()}
    assert rows == {str(CONTROLLER_ID): "Leader", str(KAFKA): "Observer"}
    assert "Feature: metadata.version" in run_java(FEATURES, *server, "describe")
    assert not kafka.complaints()


def test_what_administrators_ask_of_kafka_is_done_by_semel(controller: SemelNode, kafka: KafkaNode) -> None:
    server = ("--bootstrap-server", kafka.address)
    made = ("--create", "--topic", "made", "--partitions", "2", "--replication-factor", "1")
    run_java(TOPICS, *server, *made, "--config", "retention.ms=86400000")
    run_java(TOPICS, *server, "--alter", "--topic", "made", "--partitions", "3")
    one = ("--entity-type", "topics", "--entity-name", "made")
    run_java(CONFIGS, *server, *one, "--alter", "--add-config", "max.message.bytes=50000")
    described = run_java(TOPICS, *server, "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described
    assert "retention.ms=86400000" in described
    assert "max.message.bytes=50000" in described
    refused = run_java(TOPICS, *server, *made, may_fail=True)
    assert "exists already" in refused, "in the words of the controller"
    run_java(TOPICS, *server, "--create", "--topic", "gone", "--partitions", "1", "--replication-factor", "1")
    run_java(TOPICS, *server, "--delete", "--topic", "gone")
    until(lambda: "gone" not in run_java(TOPICS, *server, "--list").split(), "the topic is gone")
    follows(kafka, controller)
    assert not kafka.complaints()


def test_what_is_promised_holds_on_partitions_that_only_kafka_has(
    kafka: KafkaNode, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Topics, producer ids, coordinators: the controller of semel gives them, Kafka leads. Without cuts: Kafka lets a
    late request of the first generation end the transaction after the one that it was for."""
    arguments = ["--bootstrap", kafka.address, "--seconds", "8", "--json"]
    code = main(["check", *arguments, "--history", str(tmp_path / "history.jsonl")])
    said = capsys.readouterr()
    assert code == Exit.OK, said.out + said.err


def test_a_broker_of_kafka_that_is_killed_or_stopped_is_fenced_and_comes_back(
    cluster: MixedCluster, controller: SemelNode, kafka: KafkaNode
) -> None:
    starts, _ = last_fencing(controller, KAFKA)
    kafka.kill()
    until(lambda: last_fencing(controller, KAFKA) == (starts, 1), "the controller has fenced it")
    cluster.start(kafka)
    assert last_fencing(controller, KAFKA) == (starts + 1, -1)
    if cluster.release is None:
        # With eligible leader replicas, a broker of Kafka that was killed may lack what it had acknowledged. Where it
        # has the only copy, an administrator says that it may lead.
        assert led_with(kafka.port, "made", -1)
        unclean = ("--election-type", "unclean", "--all-topic-partitions")
        run_java(ELECTION, "--bootstrap-server", kafka.address, *unclean)
    until(lambda: led_with(kafka.port, "made", KAFKA, KAFKA), "Kafka leads what it has")
    assert kafka.stop() == 143
    assert last_fencing(controller, KAFKA) == (starts + 1, 1), "nobody waited for its session to end"
    cluster.start(kafka)
    assert last_fencing(controller, KAFKA) == (starts + 2, -1)


def test_a_controller_that_was_killed_is_followed_again(
    cluster: MixedCluster, controller: SemelNode, kafka: KafkaNode
) -> None:
    controller.kill()
    cluster.start(controller)
    make_topic(kafka.port, "after", KAFKA)
    until(lambda: led_with(kafka.port, "after", KAFKA, KAFKA), "Kafka knows the topic")
    follows(kafka, controller)


def test_a_partition_goes_from_semel_to_kafka_and_back(
    cluster: MixedCluster, controller: SemelNode, semel: SemelNode, kafka: KafkaNode, capsys: pytest.CaptureFixture[str]
) -> None:
    make_topic(kafka.port, "moved", SEMEL, KAFKA)
    until(lambda: led_with(semel.port, "moved", SEMEL, KAFKA, SEMEL), "semel leads, Kafka is in sync")
    with Producer(bootstrap_servers=[semel.address, kafka.address]) as producer:
        send(producer, "moved", 0, 300)
        same_on_both(semel, kafka, "moved", capsys, 300)
        semel.kill()
        until(lambda: led_with(kafka.port, "moved", KAFKA, KAFKA), "Kafka leads")
        send(producer, "moved", 300, 300)
        cluster.start(semel)
        until(lambda: led_with(semel.port, "moved", KAFKA, KAFKA, SEMEL), "semel follows and is in sync")
        send(producer, "moved", 600, 300)
        same_on_both(semel, kafka, "moved", capsys, 900)
        server = ("--bootstrap-server", kafka.address)
        run_java(ELECTION, *server, "--election-type", "preferred", "--all-topic-partitions")
        until(lambda: led_with(semel.port, "moved", SEMEL, KAFKA, SEMEL), "semel leads again")
        send(producer, "moved", 900, 300)
        same_on_both(semel, kafka, "moved", capsys, 1200)
        # Kafka takes over once more, from a leader that stops cleanly.
        semel.stop()
        until(lambda: led_with(kafka.port, "moved", KAFKA, KAFKA), "Kafka leads after a clean stop")
        send(producer, "moved", 1200, 10)
    with RawClient(kafka.port) as client:
        values = [record.value for record in client.read_log("moved", 0)]
    assert values == [b"%d" % number for number in range(1210)]
    follows(kafka, controller)


def test_kafka_loads_a_snapshot_that_semel_has_written(
    cluster: MixedCluster, controller: SemelNode, kafka: KafkaNode
) -> None:
    """Settings that change often make a log so long that the controller writes one."""
    values = [",".join(f"{partition}:{broker}" for partition in range(4000)) for broker in (1, 2)]
    with RawClient(kafka.port, timeout_s=60) as client:
        for number in range(_SNAPSHOT_AFTER_BYTES // len(values[0]) + 5):
            value = values[number % 2]
            change = ConfigAlteration(name="leader.replication.throttled.replicas", config_operation=0, value=value)
            resource = IncrementalAlterConfigsResource(resource_type=_TOPIC, resource_name="made", configs=[change])
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = client.call(request, 1, IncrementalAlterConfigsResponse)
            assert [(one.error_code, one.error_message) for one in answer.responses] == [(0, None)]
    until(lambda: list(controller.metadata_log.glob("*-*.checkpoint")), "the controller has written a snapshot")
    kafka.stop()
    shutil.rmtree(kafka.metadata_log)
    cluster.start(kafka)
    assert list(kafka.metadata_log.glob("*-*.checkpoint")), "the snapshot was fetched"
    assert led_with(kafka.port, "made", KAFKA, KAFKA)
    make_topic(kafka.port, "later", KAFKA)
    until(lambda: led_with(kafka.port, "later", KAFKA, KAFKA), "Kafka knows the topic")
    follows(kafka, controller)
    assert not kafka.complaints()
