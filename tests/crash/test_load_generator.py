"""The load generator of `make bench` on a real node: what it says that it did has been done."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from brokers import Node
from load_generator import Fetch, NotLoaded, Produce, arguments, load, loaded, program, skip_reason

import semel
import semel.sync
from real_broker import Brokers
from semel.wire.frame import read_request_header

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))

TOPIC = "loaded"
PARTITIONS = 4
SECONDS = 0.5
FIRST_RECORD = 1  # that the bench itself writes when it makes a topic


@pytest.fixture
def node(brokers: Brokers, tmp_path: Path) -> Node:
    found = Node("semel", brokers.start(flush="os"), tmp_path)
    found.create(TOPIC, PARTITIONS)
    return found


def ends(node: Node) -> list[int]:
    partitions = [semel.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with semel.sync.Consumer(bootstrap_servers=node.address) as consumer:
        found = consumer.end_offsets(partitions)
    return [found[one] for one in partitions]


@pytest.mark.parametrize("plain", [False, True])
def test_it_has_written_as_many_records_as_it_says(node: Node, plain: bool) -> None:
    work = Produce(connections=3, in_flight=5, records=7, value_bytes=50, partitions_per_request=2, plain=plain)
    found = load(node, TOPIC, work, seconds=SECONDS)
    assert found.sum_records == found.sum_requests * 7 * 2
    assert sum(ends(node)) == found.sum_records + FIRST_RECORD
    assert min(ends(node)) > 0, "of six places that requests go to, each partition has one"
    assert 0 < found.p50_us <= found.p99_us <= found.p999_us


@pytest.mark.parametrize("sessions", [False, True])
def test_it_reads_every_record_again_and_again(node: Node, sessions: bool) -> None:
    load(node, TOPIC, Produce(in_flight=2, records=16), seconds=0.1)
    there = sum(ends(node))
    work = Fetch(connections=1, partitions_per_request=PARTITIONS, max_bytes=1 << 20, sessions=sessions)
    found = load(node, TOPIC, work, seconds=SECONDS)
    assert found.sum_records > there / PARTITIONS
    assert found.sum_megabytes > found.sum_records * 1000 / 1e6


def relay(listening: socket.socket, port: int, asked: list[bytes]) -> None:
    """Between one client and the node, request by request; keeps what was asked."""
    client, node = listening.accept()[0], socket.create_connection(("127.0.0.1", port))
    with client, node, client.makefile("rb") as requests, node.makefile("rb") as answers:
        while length := requests.read(4):
            asked.append(requests.read(int.from_bytes(length, "big")))
            node.sendall(length + asked[-1])
            length = answers.read(4)
            client.sendall(length + answers.read(int.from_bytes(length, "big")))


def test_a_session_is_opened_once_and_then_continued(node: Node) -> None:
    load(node, TOPIC, Produce(), seconds=0.1)
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        relaying = threading.Thread(target=relay, args=(listening, node.process.port, asked))
        relaying.start()
        work = Fetch(connections=1, partitions_per_request=PARTITIONS, max_bytes=1, sessions=True)
        target = ["--topic", TOPIC, "--port", str(listening.getsockname()[1]), "--seconds", "0.3"]
        subprocess.run([str(program()), *arguments(work), *target], check=True, capture_output=True)
        relaying.join()
    # Of the body: replica, wait, fewest and most bytes, isolation; then the session's id and epoch.
    sessions = [struct.unpack_from(">ii", one, read_request_header(one).body_position + 17) for one in asked]
    assert sessions[0] == (0, 0)
    assert len(sessions) > 2
    assert {number for number, _ in sessions[1:]} == {sessions[1][0]} != {0}
    assert [epoch for _, epoch in sessions[1:]] == list(range(1, len(sessions)))


def test_in_an_open_loop_requests_come_at_the_rate_that_was_asked_for(node: Node) -> None:
    found = load(node, TOPIC, Produce(in_flight=100, value_bytes=100, rate=200), seconds=SECONDS)
    assert found.sum_requests + found.unsent == 200 * SECONDS


def test_in_an_open_loop_a_stall_of_the_broker_is_in_the_latencies(node: Node) -> None:
    """In a closed loop one request of thousands would be slow. The stall lasts to the end: what could not be sent has
    waited, too."""
    work = Produce(connections=1, value_bytes=100, rate=1000)
    target = ["--topic", TOPIC, "--port", str(node.process.port), "--seconds", "1"]
    running = subprocess.Popen([str(program()), *arguments(work), *target], stdout=subprocess.PIPE, text=True)
    time.sleep(0.4)
    os.kill(node.process.pid, signal.SIGSTOP)
    going_on = threading.Timer(1.2, os.kill, (node.process.pid, signal.SIGCONT))
    going_on.start()
    output, _ = running.communicate(timeout=60)
    going_on.join()
    found = loaded(output, cpu_s=0.0)
    assert found.unsent > 0
    assert found.sum_requests + found.unsent == 1000
    assert found.p50_us > 50_000


def test_what_the_broker_refuses_is_told_by_name(node: Node) -> None:
    with pytest.raises(NotLoaded, match="UNKNOWN_TOPIC_OR_PARTITION"):
        load(node, TOPIC, Fetch(partitions=PARTITIONS + 1, connections=5), seconds=0.1)


def test_without_a_broker_it_says_where_it_looked(node: Node) -> None:
    node.process.stop()
    command = [str(program()), *arguments(Fetch()), "--topic", TOPIC, "--port", str(node.process.port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"No connection to 127.0.0.1:{node.process.port}: Connection refused. Does a broker listen there?\n"
    )
