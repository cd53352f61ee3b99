"""From a node alone to a cluster of three, as docs/cluster.md says it, while a producer writes and a node is killed."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_broker import clean_environment
from semel.client.admin.values import NewTopic
from semel.local.node_process import SERVE, NodeProcess, wait_until_ready
from semel.local.ports import HOST, HeldPorts
from semel.sync import Admin, Consumer, Producer

TIMEOUT_S = 90.0
QUICK = ["broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=200", "offsets.topic.num.partitions=3"]


class Growing:
    """The nodes of the test, by the name of their directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ports = HeldPorts()
        self._nodes: dict[str, NodeProcess] = {}

    def port(self) -> int:
        """One with two free ones after it."""
        while True:
            (first,) = self._ports.take(1)
            try:
                self._ports.hold([first + 1, first + 2])
            except OSError:
                continue
            return first

    def serve(self, name: str, *options: str) -> NodeProcess:
        settings = [part for setting in QUICK for part in ("--set", setting)]
        command = [*SERVE, "--data", str(self._root / name), *options, *settings]
        node = self._nodes[name] = NodeProcess(name, command, self._root / f"{name}.log")
        node.spawn()
        wait_until_ready([node])
        return node

    def close(self) -> None:
        for node in self._nodes.values():
            node.kill()
        self._ports.close()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    growing = Growing(tmp_path)
    yield growing
    growing.close()


def semel(*arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "semel.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=TIMEOUT_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


class Writing:
    """A producer in a thread of its own: numbers, each acknowledged before the next."""

    def __init__(self, address: str) -> None:
        self.written: list[tuple[int, int]] = []
        self._address = address
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Producer(bootstrap_servers=self._address) as producer:
                number = 0
                while not self._is_over.is_set():
                    told = producer.send("payments", b"%d" % number, partition=number % 2).result()
                    self.written.append((told.partition, told.offset))
                    number += 1
        except BaseException as error:
            self._failure = error

    def end(self) -> int:
        self._is_over.set()
        self._thread.join(TIMEOUT_S)
        if self._failure is not None:
            raise self._failure
        assert len(set(self.written)) == len(self.written)
        return len(self.written)


def test_a_node_alone_grows_into_a_cluster_that_loses_a_node(growing: Growing, tmp_path: Path) -> None:
    port = growing.port()
    address = f"{HOST}:{port}"
    alone = growing.serve("one", "--port", str(port))
    with Admin(bootstrap_servers=address) as admin, Producer(bootstrap_servers=address) as producer:
        admin.create_topics(NewTopic("payments", 2, 1))
        for number in range(100):
            producer.send("payments", b"before %d" % number, partition=number % 2)
        producer.flush()
    refused = semel("serve", "--data", str(tmp_path / "two"), "--port", "0", "--join", address, code=1)
    assert "--data DIR --cluster" in refused
    assert not (tmp_path / "two").exists()
    assert alone.stop() == 0

    growing.serve("one", "--port", str(port), "--cluster")
    writing = Writing(address)
    growing.serve("two", "--port", str(growing.port()), "--join", address)
    third = growing.serve("three", "--port", str(growing.port()), "--join", address)
    assert re.search(r"2 partitions of 1 topic have 3 replicas now", semel(*_replicas(address)))
    assert "nothing to do" in semel(*_replicas(address))
    third.kill()
    growing.serve("three")  # what it is stands beside its data
    written = writing.end()
    assert written > 10

    semel("topic", "alter", "payments", "--config", "min.insync.replicas=2", "--bootstrap", address)
    with Consumer("payments", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        values = set()
        for message in consumer:
            values.add(message.value)
            if len(values) == 100 + written:
                break
    assert values == {b"before %d" % number for number in range(100)} | {b"%d" % number for number in range(written)}
    for name in ("three", "two", "one"):
        assert growing._nodes[name].stop() == 0
    for name in ("two", "three"):
        told = semel("log", "check", str(tmp_path / "one"), "--against", str(tmp_path / name))
        assert f"no damage in 3 partitions, {_offsets(told):,} offsets" in told
        assert _offsets(told) > 100 + written


def _replicas(address: str) -> list[str]:
    return ["topic", "replicas", "--all", "--factor", "3", "--bootstrap", address]


def _offsets(told: str) -> int:
    found = re.search(r"([\d,]+) offsets", told)
    assert found is not None, told
    return int(found[1].replace(",", ""))
