"""Apache Kafka's tools on a cluster of three semel brokers, and Kafka as a judge of what the nodes leave on disk.

DumpLogSegments reads every directory after work and kills, and a controller of Kafka loads the metadata log that a
semel controller has written. `make conformance` runs it; SEMEL_KAFKA_VERSION chooses the version of Kafka.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from neighbour_steps import CLUSTER_TOOL, CONFIGS, ELECTION, FEATURES, QUORUM, REASSIGN, TOPICS, partition_of

import apache_kafka
from mixed_cluster import KafkaNode, metadata_records, run_java, until
from semel.cli.failures import Exit
from semel.cli.main import main
from semel.sync import Producer
from semel.testing import Cluster
from semel.wire.spec.metadata_records import TopicRecord

DUMP = "kafka.tools.DumpLogSegments" if apache_kafka.VERSION < "4.2" else "org.apache.kafka.tools.DumpLogSegments"
DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
COMPLAINTS = re.compile(
    r"mismatch|out of order|Non-consecutive|invalid bytes|isvalid: false|does not match|failed|corrupt|Exception", re.I
)
SETTINGS = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 300, "log.segment.bytes": 200_000}
VALUE = b"x" * 200

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(apache_kafka.skip_reason() is not None, reason=str(apache_kafka.skip_reason())),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("mixed cluster"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def server(cluster: Cluster) -> tuple[str, str]:
    for node_id, node in cluster.nodes.items():
        if not node.is_running:
            cluster.start_node(node_id)
    return "--bootstrap-server", cluster.bootstrap_servers


def port_of(cluster: Cluster, node_id: int) -> int:
    return int(cluster.nodes[node_id].address.rpartition(":")[2])


def state(cluster: Cluster, topic: str) -> tuple[int, list[int], list[int]]:
    """Leader, replicas and those in sync of partition 0, as a broker that runs tells them."""
    asked = next(node_id for node_id in cluster.brokers if cluster.nodes[node_id].is_running)
    found = partition_of(port_of(cluster, asked), topic)
    return (-1, [], []) if found is None else (found.leader_id, list(found.replica_nodes), sorted(found.isr_nodes))


def test_topics_have_as_many_replicas_as_are_asked_for(server: tuple[str, str]) -> None:
    factor = ("--replication-factor", "3", "--partitions", "6")
    run_java(TOPICS, *server, "--create", "--topic", "three", *factor, "--config", "min.insync.replicas=2")
    run_java(TOPICS, *server, "--create", "--topic", "default")
    described = run_java(TOPICS, *server, "--describe")
    assert re.search(r"Topic: three\s+TopicId: \S+\s+PartitionCount: 6\s+ReplicationFactor: 3", described)
    assert re.search(r"Topic: default\s+TopicId: \S+\s+PartitionCount: 1\s+ReplicationFactor: 3", described)
    leaders = re.findall(r"Topic: three\s+Partition: \d+\s+Leader: (\d)", described)
    assert sorted(leaders) == ["1", "1", "2", "2", "3", "3"]
    refused = run_java(TOPICS, *server, "--create", "--topic", "four", "--replication-factor", "4", may_fail=True)
    assert "replication factor" in refused.lower()


def test_the_cluster_its_quorum_and_its_features_are_described(cluster: Cluster, server: tuple[str, str]) -> None:
    listed = run_java(CLUSTER_TOOL, "list-endpoints", *server)
    assert all(str(port_of(cluster, node_id)) in listed for node_id in cluster.brokers)
    assert "Cluster ID: " in run_java(CLUSTER_TOOL, "cluster-id", *server)
    status = run_java(QUORUM, *server, "describe", "--status")
    leader = cluster.controller_id()
    assert f"LeaderId:               {leader}" in status
    rows = run_java(QUORUM, *server, "describe", "--replication").splitlines()[1:]
    kinds = {line.split()[0]: line.split()[-1] for line in rows if line.strip()}
    assert kinds == {str(one): "Leader" if one == leader else "Follower" for one in cluster.controllers}
    controllers = ",".join(cluster.controller_address(one) for one in cluster.controllers)
    assert "LeaderId" in run_java(QUORUM, "--bootstrap-controller", controllers, "describe", "--status")
    features = run_java(FEATURES, *server, "describe")
    assert re.search(r"metadata.version\s.*FinalizedVersionLevel: 4\.1-IV1", features)
    assert re.search(r"eligible.leader.replicas.version\s.*FinalizedVersionLevel: 1", features)
    run_java(FEATURES, *server, "upgrade", "--feature", "metadata.version=30")
    raised = run_java(FEATURES, *server, "describe")
    assert re.search(r"metadata.version\s.*FinalizedVersionLevel: 4\.3-IV0", raised)


def test_leaders_are_elected_and_replicas_are_moved(cluster: Cluster, server: tuple[str, str], tmp_path: Path) -> None:
    run_java(TOPICS, *server, "--create", "--topic", "moved", "--replica-assignment", "1:2")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(100):
            producer.send("moved", VALUE)
    cluster.kill(1)
    until(lambda: state(cluster, "moved") == (2, [1, 2], [2]), "the other replica leads")
    cluster.start_node(1)
    until(lambda: state(cluster, "moved")[2] == [1, 2], "both are in sync")
    run_java(ELECTION, *server, "--election-type", "preferred", "--topic", "moved", "--partition", "0")
    until(lambda: state(cluster, "moved") == (1, [1, 2], [1, 2]), "the preferred replica leads")
    plan = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [3, 2]}]}
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps(plan))
    run_java(REASSIGN, *server, "--reassignment-json-file", str(wanted), "--execute")

    def is_over() -> bool:
        said = run_java(REASSIGN, *server, "--reassignment-json-file", str(wanted), "--verify", may_fail=True)
        return "Reassignment of partition moved-0 is completed" in said

    until(is_over, "the partition has moved")
    until(lambda: state(cluster, "moved")[1:] == ([3, 2], [2, 3]), "all know where it is now")
    assert "No partition reassignments found" in run_java(REASSIGN, *server, "--list")


def test_kafka_reads_what_nodes_leave_after_work_and_kills(
    cluster: Cluster, server: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work_and_kills(cluster, tmp_path, capsys)
    cluster.stop()
    for node_id in cluster.brokers:
        directories = [path for path in cluster.data(node_id).iterdir() if path.is_dir()]
        metadata = [path for path in directories if path.name.startswith("__cluster_metadata")]
        others = [path for path in directories if path not in metadata]
        for wanted, option in ((metadata, "--cluster-metadata-decoder"), (others, "--deep-iteration")):
            files = sorted(path for one in wanted for path in one.iterdir() if path.suffix in DUMPED)
            if files:
                said = run_java(DUMP, option, "--files", ",".join(map(str, files)))
                assert COMPLAINTS.findall(said) == [], f"node {node_id}: {said[:4000]}"
                assert said.count("isvalid: true") == said.count("baseOffset: ")
    for one, other in pairwise(cluster.brokers):
        code = main(["log", "check", str(cluster.data(one)), "--against", str(cluster.data(other))])
        assert code == Exit.OK, capsys.readouterr().out


def work_and_kills(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for node_id in cluster.brokers:
        cluster.kill(node_id)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"killed-{node_id}") as producer:
            for number in range(4):
                with producer.transaction():
                    for _ in range(100):
                        producer.send("three", VALUE, key=b"%d" % number)
        cluster.start_node(node_id)
    code = main(["check", "--bootstrap", cluster.bootstrap_servers, "--seconds", "5", "--json"])
    said = capsys.readouterr()
    assert code == Exit.OK, said.out + said.err
    until(lambda: state(cluster, "three")[2] == [1, 2, 3], "all replicas are in sync")


def test_a_controller_of_kafka_loads_the_metadata_log(
    cluster: Cluster, server: tuple[str, str], tmp_path: Path
) -> None:
    """On a copy of the directory, as the same node; it goes on where the controller of semel has stopped."""
    run_java(
        CONFIGS, *server, "--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "max.connections=9"
    )
    run_java(TOPICS, *server, "--create", "--if-not-exists", "--topic", "three")
    run_java(TOPICS, *server, "--create", "--topic", "gone")
    run_java(TOPICS, *server, "--delete", "--topic", "gone")
    controller = cluster.controller_id()
    cluster.stop()
    kafka = KafkaNode(tmp_path / "kafka", controller, "controller", {"CONTROLLER": apache_kafka.free_ports(1)[0]})
    shutil.copytree(cluster.data(controller), kafka.data)
    try:
        kafka.prepare(kafka.settings(f"{controller}@{kafka.address}"), "", None)
        kafka.spawn()
        kafka.wait_until_ready()
        status = run_java(QUORUM, "--bootstrap-controller", kafka.address, "describe", "--status")
        assert f"LeaderId:               {controller}" in status
        assert kafka.complaints() == []
        replayed = kafka.log()
        names = {one.name for one in metadata_records(kafka.data) if isinstance(one, TopicRecord)}
        assert {"three", "gone"} <= names
        missing = [name for name in names if f"Replayed TopicRecord for topic {name} " not in replayed]
        assert missing == []
    finally:
        kafka.stop()
