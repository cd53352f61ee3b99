"""Apache Kafka's own tools on our files and on our broker: DumpLogSegments, the Java clients, the admin commands.

They need Java and Maven, and are run by `make conformance` alone; `tests/apache_kafka.py` finds the jars.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from sample_records import CODECS, stored_codecs

import apache_kafka
from apache_kafka import CACHE
from raw_client import RawClient, batch_of
from real_broker import Brokers, RealBroker
from semel.config import load_config, topic_config
from semel.host.real import real_host
from semel.log.log import Log
from semel.records.batch import read_header
from semel.records.build import build_batch
from semel.records.control import ControlType

DUMP = "kafka.tools.DumpLogSegments"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
# What the tool says, still with exit code 0, when files do not fit each other.
COMPLAINTS = re.compile(
    r"mismatch|out of order|Non-consecutive|invalid bytes|isvalid: false|does not match|failed|corrupt|Exception", re.I
)

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(shutil.which("java") is None, reason="Kafka's tools need java on the PATH"),
    pytest.mark.skipif(
        shutil.which("mvn") is None and not (CACHE / "complete").exists(),
        reason="Kafka's jars are resolved by Maven, and mvn is not on the PATH",
    ),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="session")
def class_path() -> str:
    return apache_kafka.class_path()


def run_java(class_path: str, tool: str, *arguments: str) -> str:
    """What the tool said on both outputs (complaints come on the second); it must end well."""
    quick = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    ran = subprocess.run(
        ["java", *quick, "-cp", class_path, tool, *arguments], capture_output=True, text=True, timeout=90, check=False
    )
    assert ran.returncode == 0, f"{tool} ended with {ran.returncode}:\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
    return ran.stdout + "".join(line for line in ran.stderr.splitlines(True) if not line.startswith("SLF4J"))


def dump(class_path: str, directory: Path, *options: str, kinds: tuple[str, ...] = DUMPED) -> str:
    files = sorted(path for path in directory.iterdir() if path.suffix in kinds)
    assert files
    return run_java(class_path, DUMP, *options, "--files", ",".join(map(str, files)))


def produce_with_java(class_path: str, broker: RealBroker, topic: str, count: int, *properties: str) -> None:
    given = [f"bootstrap.servers={broker.address}", "acks=all", "enable.idempotence=true", *properties]
    rate = ["--num-records", str(count), "--record-size", "100", "--throughput", "-1"]
    said = run_java(class_path, PERFORMANCE, "--topic", topic, *rate, "--producer-props", *given)
    assert f"{count} records sent" in said.splitlines()[-1]


def consume_with_java(class_path: str, broker: RealBroker, topic: str, offset: str, count: int) -> list[str]:
    place = ["--topic", topic, "--partition", "0", "--offset", offset, "--max-messages", str(count)]
    said = run_java(class_path, CONSOLE_CONSUMER, "--bootstrap-server", broker.address, *place, "--timeout-ms", "30000")
    *read, last = said.splitlines()
    assert last == f"Processed a total of {count} messages"
    return read


@pytest.mark.parametrize("codec", CODECS)
def test_the_java_clients_write_and_read_with_every_codec(class_path: str, broker: RealBroker, codec: str) -> None:
    topic = f"java-{codec}"
    produce_with_java(class_path, broker, topic, 3000, f"compression.type={codec}", "linger.ms=20")
    assert stored_codecs(broker.data, topic) == {codec}
    everything = consume_with_java(class_path, broker, topic, "earliest", 3000)
    assert [len(line) for line in everything] == [100] * 3000
    with RawClient(broker.port) as client:
        assert [(record.value or b"").decode() for record in client.read_log(topic, 0)] == everything
    assert consume_with_java(class_path, broker, topic, "2500", 500) == everything[2500:]


def test_the_java_admin_creates_describes_alters_and_deletes(class_path: str, broker: RealBroker) -> None:
    server = ["--bootstrap-server", broker.address]
    wanted = ["--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=86400000"]
    run_java(class_path, TOPICS, *server, "--create", "--topic", "made", *wanted)
    described = run_java(class_path, TOPICS, *server, "--describe", "--topic", "made")
    assert "PartitionCount: 2" in described
    assert "retention.ms=86400000" in described
    run_java(class_path, TOPICS, *server, "--alter", "--topic", "made", "--partitions", "3")
    changed = ["--alter", "--add-config", "max.message.bytes=50000,cleanup.policy=[compact,delete]"]
    run_java(class_path, CONFIGS, *server, "--entity-type", "topics", "--entity-name", "made", *changed)
    configs = run_java(class_path, CONFIGS, *server, "--entity-type", "topics", "--entity-name", "made", "--describe")
    assert "max.message.bytes=50000" in configs
    assert "PartitionCount: 3" in run_java(class_path, TOPICS, *server, "--describe", "--topic", "made")
    run_java(class_path, TOPICS, *server, "--delete", "--topic", "made")
    assert "made" not in run_java(class_path, TOPICS, *server, "--list").split()


def test_the_java_admin_changes_the_settings_of_groups(class_path: str, broker: RealBroker) -> None:
    groups = ["--bootstrap-server", broker.address, "--entity-type", "groups"]
    changed = ["--alter", "--add-config", "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000"]
    run_java(class_path, CONFIGS, *groups, "--entity-name", "readers", *changed)
    described = run_java(class_path, CONFIGS, *groups, "--entity-name", "readers", "--describe")
    assert "consumer.session.timeout.ms=50000" in described
    assert "GROUP_CONFIG:consumer.session.timeout.ms=50000" in described
    assert "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000" in described
    assert "consumer.heartbeat.interval.ms=6000" in run_java(class_path, CONFIGS, *groups, "--describe")
    run_java(
        class_path,
        CONFIGS,
        *groups,
        "--entity-name",
        "readers",
        "--alter",
        "--delete-config",
        "consumer.session.timeout.ms",
    )
    described = run_java(class_path, CONFIGS, *groups, "--entity-name", "readers", "--describe")
    assert "consumer.session.timeout.ms" not in described
    assert "consumer.heartbeat.interval.ms=6000" in described


def test_the_java_admin_changes_the_levels_of_loggers(class_path: str, broker: RealBroker) -> None:
    loggers = ["--bootstrap-server", broker.address, "--entity-type", "broker-loggers", "--entity-name", "1"]
    assert "semel.broker=INFO" in run_java(class_path, CONFIGS, *loggers, "--describe")
    run_java(class_path, CONFIGS, *loggers, "--alter", "--add-config", "semel.broker=DEBUG")
    assert "semel.broker=DEBUG" in run_java(class_path, CONFIGS, *loggers, "--describe")
    run_java(class_path, CONFIGS, *loggers, "--alter", "--delete-config", "semel.broker")
    assert "semel.broker=INFO" in run_java(class_path, CONFIGS, *loggers, "--describe")


def test_the_java_admin_describes_features(class_path: str, broker: RealBroker) -> None:
    described = run_java(class_path, FEATURES, "--bootstrap-server", broker.address, "describe")
    lines = {line.split()[1]: line for line in described.splitlines() if line.startswith("Feature: ")}
    level = re.compile(r"SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)")
    found = {name: match.groups() for name, line in lines.items() if (match := level.search(line))}
    assert found == {
        "metadata.version": ("3.3-IV3", "3.3-IV3", "3.3-IV3"),
        "group.version": ("0", "1", "1"),
        "transaction.version": ("0", "2", "2"),
    }


def test_the_java_tools_list_offsets_by_time_and_delete_records(
    class_path: str, broker: RealBroker, tmp_path: Path
) -> None:
    with RawClient(broker.port) as client:
        client.make_topic("timed")
        now_ms = int(time.time() * 1000)
        for number in range(10):
            batch = batch_of([b"x"] * 10, timestamp_ms=now_ms - 100_000 + number * 1000)
            assert client.produce("timed", 0, batch).error_code == 0
    server = ["--bootstrap-server", broker.address]
    for kind, offset in (("earliest", 0), ("latest", 100), ("max-timestamp", 90), (str(now_ms - 95_000), 50)):
        said = run_java(class_path, OFFSETS, *server, "--topic", "timed", "--time", kind)
        assert said.strip() == f"timed:0:{offset}"
    wanted = tmp_path / "wanted.json"
    wanted.write_text('{"version": 1, "partitions": [{"topic": "timed", "partition": 0, "offset": 42}]}')
    said = run_java(class_path, DELETE_RECORDS, *server, "--offset-json-file", str(wanted))
    assert "low_watermark: 42" in said
    assert run_java(class_path, OFFSETS, *server, "--topic", "timed", "--time", "earliest").strip() == "timed:0:42"


def test_dump_log_segments_finds_nothing_wrong_with_our_files(class_path: str, brokers: Brokers) -> None:
    broker = brokers.start(flush="os", settings={"log.segment.bytes": "200000", "log.index.interval.bytes": "2000"})
    for codec in ("none", "zstd"):
        produce_with_java(class_path, broker, "dumped", 5000, f"compression.type={codec}")
    with RawClient(broker.port) as client:
        producer_id = client.new_producer_id()
        for sequence in range(7):
            batch = batch_of([b"%d" % sequence], timestamp_ms=1, producer_id=producer_id, sequence=sequence)
            client.produce("dumped", 0, batch)
    assert broker.stop() == 0
    directory = broker.data / "dumped-0"
    assert len(list(directory.glob("*.log"))) > 3
    said = dump(class_path, directory, "--print-data-log")
    assert COMPLAINTS.findall(said) == []
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", said, re.M)]
    assert offsets == list(range(10007))
    assert said.count("isvalid: true") == said.count("baseOffset: ")
    assert re.search(rf"producerId: {producer_id} .*lastSequence: 6", said)
    sane = dump(class_path, directory, "--index-sanity-check", kinds=(".index", ".timeindex"))
    indexes = [path for path in directory.iterdir() if path.suffix in (".index", ".timeindex")]
    assert sane.count("passed sanity check") == len(indexes)


def test_dump_log_segments_finds_what_is_wrong(class_path: str, brokers: Brokers) -> None:
    """The judge is trusted because it notices a wrong byte in each kind of file."""
    broker = brokers.start(flush="os", settings={"log.index.interval.bytes": "1000"})
    with RawClient(broker.port) as client:
        client.make_topic("wrong")
        for number in range(50):
            client.produce("wrong", 0, batch_of([b"x" * 300], timestamp_ms=1_700_000_000_000 + number))
    assert broker.stop() == 0
    directory = broker.data / "wrong-0"
    assert COMPLAINTS.findall(dump(class_path, directory, "--deep-iteration")) == []
    # The offset of an index entry, the time of a time index entry, a byte of a record.
    for suffix, place in ((".index", 3), (".timeindex", 7), (".log", 500)):
        path = directory / f"{0:020d}{suffix}"
        sound = path.read_bytes()
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 2]) + sound[place + 1 :])
        assert COMPLAINTS.findall(dump(class_path, directory, "--deep-iteration")), f"{suffix} was not looked at"
        path.write_bytes(sound)


def test_dump_log_segments_reads_our_cluster_metadata(class_path: str, brokers: Brokers) -> None:
    broker = brokers.start(settings={"num.partitions": "2"})
    with RawClient(broker.port) as client:
        client.make_topic("described")
        client.new_producer_id()
    assert broker.stop() == 0
    said = dump(class_path, broker.data / "__cluster_metadata-0", "--cluster-metadata-decoder")
    assert COMPLAINTS.findall(said) == []
    kinds = re.findall(r'"type":"(\w+)"', said)
    assert {"FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PRODUCER_IDS_RECORD"} <= set(kinds)
    assert kinds.count("PARTITION_RECORD") == 2
    assert '"name":"described"' in said


def test_dump_log_segments_reads_our_transaction_index(class_path: str, tmp_path: Path) -> None:
    """Written by the log itself, with interleaved transactions that commit and abort."""
    directory = tmp_path / "transactions-0"
    asyncio.run(write_transactions(directory))
    said = dump(class_path, directory, "--print-data-log")
    assert COMPLAINTS.findall(said) == []
    markers = re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", said)
    assert markers == [("ABORT", "3"), ("COMMIT", "3")] * 20
    aborted = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", said)
    # Producer 1 writes 2 records at 6n and aborts at 6n + 4, while producer 2 is still open from 6n + 2 on.
    assert [tuple(map(int, row)) for row in aborted] == [(1, 6 * n, 6 * n + 4, 6 * n + 2) for n in range(20)]
    assert re.search(r"producerId: 2 .*lastSequence: 39", said)


async def write_transactions(directory: Path) -> None:
    host = real_host()
    config = topic_config({"segment.bytes": "2000", "index.interval.bytes": "500"}, load_config(None, {}, {}))
    log = Log(host.disk, str(directory), config)
    now_ms = 1_700_000_000_000
    for round_number in range(20):
        for producer_id in (1, 2):
            batch = build_batch(
                [b"a", b"b"],
                base_timestamp_ms=now_ms + round_number,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=2 * round_number,
                transactional=True,
            )
            log.append(batch, read_header(batch), 0, now_ms)
        log.append_marker(ControlType.ABORT, 1, 0, 3, 0, now_ms + round_number)
        log.append_marker(ControlType.COMMIT, 2, 0, 3, 0, now_ms + round_number)
        await log.flush()
        if log.needs_settling:
            await log.settle()
    log.close()
    host.close()
