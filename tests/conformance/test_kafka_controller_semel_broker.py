"""A controller of Apache Kafka, and brokers of both kinds: semel follows its metadata, registers, and takes part in
partitions as follower and as leader. `make conformance` runs it; SEMEL_KAFKA_VERSION chooses the version of Kafka.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from neighbour_steps import (
    CLUSTER_TOOL,
    ELECTION,
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
from mixed_cluster import KafkaNode, MixedCluster, SemelNode, assert_same_batches, batches_of, end_of, run_java, until
from raw_client import RawClient, batch_of
from semel.cli.failures import Exit
from semel.cli.main import main
from semel.sync import Producer

CONTROLLER_ID, SEMEL, KAFKA = 3000, 1, 2
# The least level that Kafka 4 has; the last before share groups; what this version of Kafka takes by itself.
RELEASES = ("3.3-IV3", "4.1-IV1", None)

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(apache_kafka.skip_reason() is not None, reason=str(apache_kafka.skip_reason())),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("mixed cluster"),
]


@pytest.fixture(scope="module", params=RELEASES)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """The controller of Kafka and the broker of semel; a broker of Kafka joins when a test needs it."""
    cluster = MixedCluster(tmp_path_factory.mktemp("mixed"), release=request.param)
    controller = cluster.kafka(CONTROLLER_ID, "controller")
    controller.extra = {"metadata.log.max.snapshot.interval.ms": "8000"}
    try:
        cluster.start(controller, cluster.semel(SEMEL, "broker"))
        yield cluster
    finally:
        cluster.reap()


@pytest.fixture
def controller(cluster: MixedCluster) -> KafkaNode:
    node = cluster.nodes[CONTROLLER_ID]
    assert isinstance(node, KafkaNode)
    return node


@pytest.fixture
def semel(cluster: MixedCluster) -> SemelNode:
    node = cluster.nodes[SEMEL]
    assert isinstance(node, SemelNode)
    if not node.is_running:
        cluster.start(node)
    return node


@pytest.fixture
def kafka(cluster: MixedCluster) -> KafkaNode:
    node = cluster.nodes.get(KAFKA) or cluster.kafka(KAFKA, "broker")
    assert isinstance(node, KafkaNode)
    if not node.is_running:
        cluster.start(node)
    return node


# -- the metadata


def test_kafkas_admin_sees_semel_as_a_broker(cluster: MixedCluster, controller: KafkaNode, semel: SemelNode) -> None:
    assert last_fencing(controller, SEMEL) == (1, -1)
    listed = run_java(CLUSTER_TOOL, "list-endpoints", "--bootstrap-server", semel.address, "--include-fenced-brokers")
    assert "unfenced" in listed.lower()
    assert str(semel.port) in listed
    status = run_java(QUORUM, "--bootstrap-server", semel.address, "describe", "--status")
    assert f"LeaderId:               {CONTROLLER_ID}" in status
    replication = run_java(QUORUM, "--bootstrap-server", semel.address, "describe", "--replication")
    rows = {line.split()[0]: line.split()[-1] for line in replication.splitlines()[1:] if line.strip()}
    assert rows == {str(CONTROLLER_ID): "Leader", str(SEMEL): "Observer"}


def test_a_topic_made_through_semel_is_in_the_same_log_everywhere(controller: KafkaNode, semel: SemelNode) -> None:
    server = ("--bootstrap-server", semel.address)
    made = ("--create", "--topic", "made", "--partitions", "3", "--replication-factor", "1")
    run_java(TOPICS, *server, *made, "--config", "retention.ms=86400000")
    described = run_java(TOPICS, *server, "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described
    assert "retention.ms=86400000" in described
    follows(semel, controller)


def test_what_is_promised_holds_on_partitions_that_only_semel_has(
    semel: SemelNode, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Topics, producer ids, coordinators: the controller of Kafka gives them, semel leads."""
    arguments = ["--bootstrap", semel.address, "--seconds", "8", "--faults", "cut,delay", "--json"]
    code = main(["check", *arguments, "--history", str(tmp_path / "history.jsonl")])
    said = capsys.readouterr()
    assert code == Exit.OK, said.out + said.err


def test_a_killed_broker_is_fenced_and_comes_back(
    cluster: MixedCluster, controller: KafkaNode, semel: SemelNode
) -> None:
    starts, _ = last_fencing(controller, SEMEL)
    semel.kill()
    until(lambda: last_fencing(controller, SEMEL) == (starts, 1), "the controller has fenced it")
    cluster.start(semel)
    assert last_fencing(controller, SEMEL) == (starts + 1, -1)
    assert led_with(semel.port, "made", SEMEL, SEMEL)


def test_a_controlled_stop_fences_it_at_once(cluster: MixedCluster, controller: KafkaNode, semel: SemelNode) -> None:
    starts, _ = last_fencing(controller, SEMEL)
    assert semel.stop() == 0
    assert last_fencing(controller, SEMEL) == (starts, 1), "nobody waited for its session to end"
    cluster.start(semel)
    assert last_fencing(controller, SEMEL) == (starts + 1, -1)


def test_a_controller_that_was_killed_is_followed_again(
    cluster: MixedCluster, controller: KafkaNode, semel: SemelNode
) -> None:
    controller.kill()
    cluster.start(controller)
    make_topic(semel.port, "after", SEMEL)
    until(lambda: led_with(semel.port, "after", SEMEL, SEMEL), "semel knows the topic")
    assert_same_batches(semel.metadata_log, controller.metadata_log)


def test_a_lost_metadata_log_comes_back_as_a_snapshot(
    cluster: MixedCluster, controller: KafkaNode, semel: SemelNode
) -> None:
    def has_snapshot() -> bool:
        return any(path.name != "bootstrap.checkpoint" for path in controller.metadata_log.glob("*-*.checkpoint"))

    until(has_snapshot, "the controller has written a snapshot")
    semel.stop()
    shutil.rmtree(semel.metadata_log)
    cluster.start(semel)
    assert list(semel.metadata_log.glob("*-*.checkpoint")), "the snapshot was fetched"
    assert min(batches_of(semel.metadata_log)) > 0, "and nothing of the log before it"
    assert led_with(semel.port, "made", SEMEL, SEMEL)
    make_topic(semel.port, "later", SEMEL)
    until(lambda: led_with(semel.port, "later", SEMEL, SEMEL), "semel knows the topic")
    assert_same_batches(semel.metadata_log, controller.metadata_log)


# -- a partition


def test_a_partition_goes_from_kafka_to_semel_and_back(
    cluster: MixedCluster, semel: SemelNode, kafka: KafkaNode, capsys: pytest.CaptureFixture[str]
) -> None:
    make_topic(semel.port, "moved", KAFKA, SEMEL)
    until(lambda: led_with(semel.port, "moved", KAFKA, KAFKA, SEMEL), "Kafka leads, semel is in sync")
    with Producer(bootstrap_servers=[semel.address, kafka.address]) as producer:
        send(producer, "moved", 0, 300)
        same_on_both(semel, kafka, "moved", capsys, 300)
        kafka.kill()
        until(lambda: led_with(semel.port, "moved", SEMEL, SEMEL), "semel leads")
        send(producer, "moved", 300, 300)
        cluster.start(kafka)
        until(lambda: led_with(semel.port, "moved", SEMEL, KAFKA, SEMEL), "Kafka follows and is in sync")
        send(producer, "moved", 600, 300)
        same_on_both(semel, kafka, "moved", capsys, 900)
        run_java(
            ELECTION, "--bootstrap-server", semel.address, "--election-type", "preferred", "--all-topic-partitions"
        )
        until(lambda: led_with(semel.port, "moved", KAFKA, KAFKA, SEMEL), "Kafka leads again")
        send(producer, "moved", 900, 300)
        same_on_both(semel, kafka, "moved", capsys, 1200)
        # What semel followed without having led since counts as well: it takes over once more.
        kafka.stop()
        until(lambda: led_with(semel.port, "moved", SEMEL, SEMEL), "semel leads after a clean stop")
        send(producer, "moved", 1200, 10)
    with RawClient(semel.port) as client:
        values = [record.value for record in client.read_log("moved", 0)]
    assert values == [b"%d" % number for number in range(1210)]


@pytest.mark.parametrize("leads_first", [SEMEL, KAFKA])
def test_a_tail_that_was_never_committed_is_cut(
    cluster: MixedCluster,
    semel: SemelNode,
    kafka: KafkaNode,
    capsys: pytest.CaptureFixture[str],
    leads_first: int,
) -> None:
    """The leader takes records for which nobody waits, and dies; the follower, which lacks them, leads. What the old
    leader has beyond the common part goes when it follows."""
    first, other = (semel, kafka) if leads_first == SEMEL else (kafka, semel)
    topic = f"parted-{leads_first}"
    make_topic(semel.port, topic, first.node_id, other.node_id)
    until(lambda: led_with(semel.port, topic, first.node_id, SEMEL, KAFKA), "both are in sync")
    with Producer(bootstrap_servers=first.address) as producer:
        send(producer, topic, 0, 100)
    until(lambda: end_of(other.data / f"{topic}-0") == 100, "the follower has all")
    time.sleep(1.0)  # It learns the high watermark a fetch later.
    other.pause()
    with RawClient(first.port) as client:
        now_ms = time.time_ns() // 1_000_000
        for number in range(5):
            answer = client.produce(topic, 0, batch_of([b"lost %d" % number], timestamp_ms=now_ms), acks=1)
            assert (answer.error_code, answer.base_offset) == (0, 100 + number)
    first.kill()
    other.resume()
    until(lambda: led_with(other.port, topic, other.node_id, other.node_id), "the follower leads")
    # A fetch that the leader held has brought it the first of them, maybe.
    kept = end_of(other.data / f"{topic}-0")
    assert 100 <= kept < 105 == end_of(first.data / f"{topic}-0")
    with Producer(bootstrap_servers=other.address) as producer:
        send(producer, topic, kept, 50)
    cluster.start(first)
    until(lambda: led_with(other.port, topic, other.node_id, SEMEL, KAFKA), "the old leader is in sync again")
    same_on_both(semel, kafka, topic, capsys, kept + 50)
    for node in (semel, kafka):
        assert not any(b"lost 4" in batch for batch in batches_of(node.data / f"{topic}-0").values())
