"""One cluster of nodes of both kinds, for tests: Apache Kafka (a JVM each) and semel, with static voters.

All nodes share the names of their listeners: CLIENTS of brokers, BROKERS for brokers among each other, CONTROLLER. They
are formatted at one release, by the format command of each kind. Everything listens on 127.0.0.1, on ports that a node
keeps through all of its starts. Every wait ends, and `reap` leaves no process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import apache_kafka
from apache_kafka import KafkaDied
from real_broker import clean_environment
from semel.config.settings_file import settings_text
from semel.local.node_process import SERVE, NodeProcess
from semel.records.batch import read_header, whole_batches
from semel.records.read import record_values
from semel.wire.spec.metadata_records import MetadataRecord, decode_metadata_record

T = TypeVar("T")
CLUSTER_ID = "c2VtZWwtdGVzdHMtMDAwMA"
PATIENCE_S = 120.0
CLIENTS, BROKERS, CONTROLLER = "CLIENTS", "BROKERS", "CONTROLLER"
STORAGE = "kafka.tools.StorageTool"
METADATA_LOG = "__cluster_metadata-0"
_STARTED = re.compile(r"Kafka Server started")
_FATAL = re.compile(r"^.*(?:\bERROR\b|fatal fault).*$", re.MULTILINE)
_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # So that a killed broker is missed soon, also on a machine with much to do.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "10000",
}


def run_java(tool: str, *arguments: str, timeout_s: float = PATIENCE_S, may_fail: bool = False) -> str:
    """What a tool of Kafka's said, on both outputs; it must end well, unless it may fail."""
    ran = subprocess.run(
        ["java", "-Xmx256m", *apache_kafka.QUICK_JAVA, "-cp", apache_kafka.class_path(), tool, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    said = ran.stdout + "".join(line for line in ran.stderr.splitlines(True) if not line.startswith("SLF4J"))
    if ran.returncode and not may_fail:
        raise KafkaDied(f"{tool} {' '.join(arguments)} ended with {ran.returncode}:\n{said[-4000:]}")
    return said


def until(look: Callable[[], T], what: str, *, timeout_s: float = PATIENCE_S) -> T:
    """What `look` returns as soon as that is true; it is tried again when it fails to reach somebody."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        seen: object
        try:
            seen = found = look()
            if found:
                return found
        except OSError as error:
            seen = error
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what}: not after {timeout_s:.0f} s; last seen: {seen!r}")
        time.sleep(0.1)


class MixedNode:
    """What nodes of both kinds have: a number, roles, a directory, ports."""

    def __init__(self, root: Path, node_id: int, roles: str, ports: Mapping[str, int]) -> None:
        self.root = root
        self.node_id = node_id
        self.roles = roles
        self.extra: dict[str, str] = {}  # settings of this node alone
        self.ports = dict(ports)
        self.data = root / "data"
        root.mkdir(parents=True)

    @property
    def port(self) -> int:
        """Of clients."""
        return self.ports[CLIENTS]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports[CLIENTS if CLIENTS in self.ports else CONTROLLER]}"

    @property
    def metadata_log(self) -> Path:
        return self.data / METADATA_LOG

    def settings(self, voters: str) -> dict[str, str]:
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()]
        advertised = [one for one in listeners if not one.startswith(CONTROLLER)]
        return {
            "node.id": str(self.node_id),
            "process.roles": self.roles,
            "log.dirs": str(self.data),
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (CLIENTS, BROKERS, CONTROLLER)),
            "controller.listener.names": CONTROLLER,
            "controller.quorum.voters": voters,
            **({"advertised.listeners": ",".join(advertised)} if advertised else {}),
            **({"inter.broker.listener.name": BROKERS} if "broker" in self.roles else {}),
            **self.extra,
        }


class KafkaNode(MixedNode):
    """Apache Kafka: a controller, a broker, or both in one."""

    def __init__(self, root: Path, node_id: int, roles: str, ports: Mapping[str, int]) -> None:
        super().__init__(root, node_id, roles, ports)
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = root / "server.properties"

    def prepare(self, settings: Mapping[str, str], cluster_id: str, release: str | None) -> None:
        """Writes its settings, and formats its directory if there is none."""
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if not self.data.exists():
            level = () if release is None else ("--release-version", release)
            run_java(STORAGE, "format", "--cluster-id", cluster_id, "--config", str(self._properties), *level)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise KafkaDied(f"node {self.node_id} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self, start: int = 0) -> str:
        """What a start, the latest if it is not said which, has logged."""
        path = self.root / f"log.{start or self.starts:03d}"
        return path.read_text(errors="replace") if path.exists() else ""

    def complaints(self) -> list[str]:
        """What the latest start has logged as an error, without what Kafka says of each partition that is added to a
        topic, whoever the controller is."""
        return [line for line in _FATAL.findall(self.log()) if "to exist, but it was missing. Creating" not in line]

    def spawn(self) -> None:
        self.starts += 1
        java = ["java", "-Xms64m", "-Xmx384m", *apache_kafka.QUICK_JAVA]
        logging = ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
        with (self.root / f"log.{self.starts:03d}").open("wb") as log:
            self._process = subprocess.Popen(
                [*java, *logging, "-cp", apache_kafka.broker_class_path(), "kafka.Kafka", str(self._properties)],
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            is_running = self.is_running
            if _STARTED.search(self.log()):
                return True
            if not is_running:
                raise KafkaDied(f"node {self.node_id} ended instead of starting:\n{self.log()[-6000:]}")
            return False

        try:
            until(is_ready, f"Kafka's node {self.node_id} has started")
        except AssertionError as error:
            raise KafkaDied(f"{error}\n{self.log()[-6000:]}") from error

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        return self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        if self._process is None:
            return 0
        process = self._process
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            return process.wait(PATIENCE_S)
        finally:
            self.reap()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def reap(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class SemelNode(MixedNode):
    """`semel serve`: a controller, a broker, or both in one."""

    def __init__(self, root: Path, node_id: int, roles: str, ports: Mapping[str, int]) -> None:
        super().__init__(root, node_id, roles, ports)
        self._config = root / "node.toml"
        self._node = NodeProcess(f"node {node_id}", [*SERVE, "--config", str(self._config)], root / "log")

    def prepare(self, settings: Mapping[str, str], cluster_id: str, release: str | None) -> None:
        self._config.write_text(settings_text(settings))
        if not self.data.exists():
            self.format(cluster_id, release)

    def format(self, cluster_id: str, release: str | None) -> None:
        level = () if release is None else ("--release-version", release)
        command = ["storage", "format", "--cluster-id", cluster_id, "--config", str(self._config), *level]
        ran = subprocess.run(
            [sys.executable, "-m", "semel.cli.main", *command],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=clean_environment(),
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    @property
    def pid(self) -> int:
        return self._node.pid

    @property
    def is_running(self) -> bool:
        return self._node.is_running

    def log(self) -> str:
        return self._node.log.read_text(errors="replace") if self._node.log.exists() else ""

    def spawn(self) -> None:
        self._node.spawn()

    def wait_until_ready(self) -> None:
        until(self._node.is_ready, f"semel's node {self.node_id} is ready; its log:\n{self.log()[-4000:]}")

    def stop(self) -> int:
        return self._node.stop(PATIENCE_S)

    def kill(self) -> int:
        self._node.kill()
        return 0

    def pause(self) -> None:
        self._node.pause()

    def resume(self) -> None:
        self._node.resume()

    def reap(self) -> None:
        self._node.kill()


class MixedCluster:
    """Nodes are added first (`kafka`, `semel`), then started. `release` is Kafka's name of the level it begins at."""

    def __init__(self, root: Path, *, release: str | None, settings: Mapping[str, str] | None = None) -> None:
        self.nodes: dict[int, KafkaNode | SemelNode] = {}
        self._root = root
        self.release = release
        self._settings = {**_SETTINGS, **(settings or {})}

    def kafka(self, node_id: int, roles: str) -> KafkaNode:
        node = KafkaNode(self._root / f"kafka-{node_id}", node_id, roles, _ports(roles))
        self.nodes[node_id] = node
        return node

    def semel(self, node_id: int, roles: str) -> SemelNode:
        node = SemelNode(self._root / f"semel-{node_id}", node_id, roles, _ports(roles))
        self.nodes[node_id] = node
        return node

    @property
    def voters(self) -> str:
        controllers = [node for node in self.nodes.values() if "controller" in node.roles]
        return ",".join(f"{node.node_id}@127.0.0.1:{node.ports[CONTROLLER]}" for node in controllers)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes.values() if "broker" in node.roles)

    def start(self, *nodes: KafkaNode | SemelNode) -> None:
        """Starts them at the same time, and returns when all are ready."""
        for node in nodes:
            node.prepare({**self._settings, **node.settings(self.voters)}, CLUSTER_ID, self.release)
            node.spawn()
        for node in nodes:
            node.wait_until_ready()

    def logs(self) -> list[tuple[str, str]]:
        return [(f"log of node {node.node_id}", node.log()[-8000:]) for node in self.nodes.values()]

    def reap(self) -> None:
        for node in self.nodes.values():
            node.reap()


def _ports(roles: str) -> dict[str, int]:
    names = [*((CLIENTS, BROKERS) if "broker" in roles else ()), *((CONTROLLER,) if "controller" in roles else ())]
    return dict(zip(names, apache_kafka.free_ports(len(names)), strict=True))


# -- what stands in directories


def batches_of(directory: Path) -> dict[int, bytes]:
    """All whole batches of a partition as they are on disk, by base offset. The partition may be in use."""
    found: dict[int, bytes] = {}
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        for position, header in whole_batches(data):
            found[header.base_offset] = bytes(data[position : position + header.size_bytes])
    return found


def assert_same_batches(one: Path, other: Path, *, at_least: int = 0) -> None:
    """Where both logs have something they have the same batches, byte for byte, and both reach offset `at_least`."""
    mine, theirs = batches_of(one), batches_of(other)
    start, end = max(min(mine), min(theirs)), min(max(mine), max(theirs))
    common = [offset for offset in mine if start <= offset <= end]
    assert common == [offset for offset in theirs if start <= offset <= end], f"other offsets in {one} than in {other}"
    for offset in common:
        assert mine[offset] == theirs[offset], f"another batch at {offset} in {one} than in {other}"
    last = read_header(mine[end], 0).last_offset if end in mine else -1
    assert last >= at_least, f"they share batches up to {last} only, not {at_least}"


def end_of(directory: Path) -> int:
    """The offset behind the last whole batch of a partition."""
    found = batches_of(directory)
    return read_header(found[max(found)], 0).next_offset if found else 0


def metadata_records(directory: Path) -> list[MetadataRecord]:
    """What the metadata log in a data directory says, without what only a snapshot has."""
    records: list[MetadataRecord] = []
    for batch in batches_of(directory / METADATA_LOG).values():
        header = read_header(batch, 0)
        if not header.is_control:
            values = record_values(memoryview(batch), header)
            records += [decode_metadata_record(value) for value in values if value is not None]
    return records
