"""Groups of Apache Kafka's own consumers and tools: the Java consumer on both protocols, ConsumerGroupCommand, and
DumpLogSegments on our `__consumer_offsets`.

Run by `make conformance` alone, like the other tests with Kafka's jars.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from test_kafka_tools import CACHE, COMPLAINTS, CONSOLE_CONSUMER, class_path, dump, produce_with_java, run_java

from real_broker import Brokers, RealBroker

__all__ = ["class_path"]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SETTINGS = {"group.initial.rebalance.delay.ms": "200", "offsets.topic.num.partitions": "1"}
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(shutil.which("java") is None, reason="Kafka's tools need java on the PATH"),
    pytest.mark.skipif(
        shutil.which("mvn") is None and not (CACHE / "complete").exists(),
        reason="Kafka's jars are resolved by Maven, and mvn is not on the PATH",
    ),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def broker(shared_brokers: Brokers) -> RealBroker:
    return shared_brokers.start(settings=SETTINGS)


def consume(class_path: str, broker: RealBroker, topic: str, group: str, protocol: str, count: int) -> list[str]:
    """Joins, reads so many records, commits them, leaves."""
    said = run_java(
        class_path,
        CONSOLE_CONSUMER,
        *("--bootstrap-server", broker.address, "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "40000"),
        *("--consumer-property", f"group.protocol={protocol}"),
    )
    lines = said.splitlines()
    assert f"Processed a total of {count} messages" in lines, said
    return [line for line in lines if len(line) == 100]


@PROTOCOLS
def test_the_java_consumer_joins_commits_leaves_and_resumes(class_path: str, broker: RealBroker, protocol: str) -> None:
    topic, group = f"java-{protocol}", f"java-group-{protocol}"
    produce_with_java(class_path, broker, topic, 300)
    first = consume(class_path, broker, topic, group, protocol, 100)
    second = consume(class_path, broker, topic, group, protocol, 200)
    assert len(first) == 100
    assert len(second) == 200
    described = run_java(
        class_path, GROUPS, "--bootstrap-server", broker.address, "--describe", "--group", group, "--offsets"
    )
    assert re.search(rf"{group}\s+{topic}\s+0\s+300\s+300\s+0", described), described


@PROTOCOLS
def test_the_groups_command_lists_describes_resets_and_deletes(
    class_path: str, broker: RealBroker, protocol: str
) -> None:
    topic, group = f"admin-{protocol}", f"admin-group-{protocol}"
    server = ["--bootstrap-server", broker.address]
    produce_with_java(class_path, broker, topic, 50)
    options = ["--topic", topic, "--group", group, "--consumer-property", f"group.protocol={protocol}"]
    reader = subprocess.Popen(
        ["java", "-Xmx256m", "-cp", class_path, CONSOLE_CONSUMER, *server, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while "Stable" not in (state := run_java(class_path, GROUPS, *server, "--list", "--state")):
            assert time.monotonic() < deadline, state
        members = run_java(class_path, GROUPS, *server, "--describe", "--group", group, "--members", "--verbose")
        assert re.search(rf"{group}\s.*{topic}:?\(?0\)?", members), members
    finally:
        reader.terminate()
        reader.wait(60)
    deadline = time.monotonic() + 60
    while not re.search(rf"{group}\s+Empty", said := run_java(class_path, GROUPS, *server, "--list", "--state")):
        assert time.monotonic() < deadline, said
    reset = run_java(
        class_path,
        GROUPS,
        *(*server, "--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "7", "--execute"),
    )
    assert re.search(rf"{topic}\s+0\s+7", reset), reset
    assert "successful" in run_java(class_path, GROUPS, *server, "--delete", "--group", group)
    assert group not in run_java(class_path, GROUPS, *server, "--list")


def test_kafkas_dump_tool_reads_our_offsets_topic(class_path: str, brokers: Brokers) -> None:
    broker = brokers.start(settings=SETTINGS)
    produce_with_java(class_path, broker, "dumped", 20)
    for protocol in ("classic", "consumer"):
        consume(class_path, broker, "dumped", f"dumped-{protocol}", protocol, 20)
    broker.stop()
    said = dump(class_path, Path(broker.data) / "__consumer_offsets-0", "--offsets-decoder", kinds=(".log",))
    assert not COMPLAINTS.search(said), said
    assert '"group":"dumped-classic"' in said
    assert '"protocolType":"consumer"' in said
    assert '"offset":20' in said
    assert "dumped-consumer" in said
    assert '"assignmentEpoch"' in said
    assert '"memberEpoch"' in said
    assert '"subscribedTopicNames":["dumped"]' in said
