"""The two brokers that are measured, each in a process of its own: semel, and Kafka as its start script runs it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from process_times import cpu_seconds

import apache_kafka
import semel
import semel.sync
from real_broker import RealBroker

KAFKA_JAVA = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# As many as a cluster has; our own defaults are the same. What is deleted goes soon, not after a minute, and with it
# the memory that the next turn needs.
_KAFKA_SETTINGS = {
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
    "log.segment.delete.delay.ms": "1000",
}
# A group begins at once: the pause that waits for more members would be in every figure of a consumer.
SEMEL_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_PATIENCE_MS = 120_000


def note() -> str:
    """What both brokers were given, for the reader of a table."""
    control = _CONGESTION_CONTROL.read_text().strip() if _CONGESTION_CONTROL.exists() else "unknown"
    return (
        f"Apache Kafka {apache_kafka.VERSION}, one KRaft node, runs with the flags of its start script "
        f"({' '.join(KAFKA_JAVA)}) and acknowledges from the page cache. semel runs with `--flush os`, which does the "
        "same; rows with *fsync* are semel's default, which acknowledges what is on the disk. Data of both is on one "
        f"disk, clients are on the same machine, TCP congestion control is {control} for all, "
        "the send buffer is 100 KB, the default of both, brokers take turns."
    )


class Process(Protocol):
    @property
    def port(self) -> int: ...

    @property
    def address(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> object: ...

    def stop(self) -> int: ...

    def kill(self) -> object: ...


class Node:
    """One broker: `name` is `semel`, `semel, fsync` or `kafka`."""

    def __init__(self, name: str, process: Process, root: Path) -> None:
        self.name = name
        self.process = process
        self.root = root

    @property
    def address(self) -> str:
        return self.process.address

    def cpu_s(self) -> float:
        return cpu_seconds(self.process.pid)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))

    def create(self, topic: str, partitions: int) -> None:
        with semel.sync.Admin(bootstrap_servers=self.address) as admin:
            admin.create_topics([semel.NewTopic(topic, partitions=partitions, replication_factor=1)])
        # A node that has just started may not have producer ids to give yet.
        with semel.sync.Producer(bootstrap_servers=self.address, linger_ms=0) as producer:
            producer.send_and_wait(topic, b"first", partition=0)

    def delete(self, topic: str) -> None:
        with semel.sync.Admin(bootstrap_servers=self.address) as admin:
            admin.delete_topics([topic])

    def seconds_to_first_record(self, topic: str) -> float:
        """From the start of the process until a record is acknowledged."""
        begin_s = time.monotonic()
        self.process.start()
        settings = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20, "retry_backoff_ms": 5}
        with semel.sync.Producer(
            bootstrap_servers=self.address, linger_ms=0, max_block_ms=_PATIENCE_MS, **settings
        ) as producer:
            producer.send_and_wait(topic, b"first", partition=0)
        return time.monotonic() - begin_s


def semel_node(root: Path, flush: str = "os") -> Node:
    root.mkdir(parents=True)
    return Node(
        "semel" if flush == "os" else "semel, fsync", RealBroker(root, flush=flush, settings=SEMEL_SETTINGS), root
    )


def kafka_node(root: Path) -> Node:
    return Node("kafka", apache_kafka.ApacheKafka(root, java=KAFKA_JAVA, settings=_KAFKA_SETTINGS), root)
