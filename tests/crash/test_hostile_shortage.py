"""What clients do to take all memory or all descriptors of a node, against a real broker; an honest client goes on."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from honest_client import honest_client

from raw_client import RawClient, batch_of, produce_request
from real_broker import Brokers, RealBroker
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

pytestmark = pytest.mark.alone

CLAIM = struct.pack(">ihhih", 100 << 20, 0, 9, 1, -1)


def longest_wait_s(client: RawClient, seconds: float) -> float:
    """Of a tiny request on a connection of its own."""
    longest = 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        started = time.monotonic()
        client.call(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3, ApiVersionsResponse)
        longest = max(longest, time.monotonic() - started)
    return longest


def create_topic(client: RawClient, name: str, partitions: int) -> int:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)], timeout_ms=30_000
    )
    return client.call(request, 7, CreateTopicsResponse).topics[0].error_code


def opened(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


# -- memory


@pytest.mark.parametrize("sent", [1_200_000, 99 << 20])
def test_four_peers_that_claim_much_and_stop_do_not_hold_up_large_requests(brokers: Brokers, sent: int) -> None:
    broker = brokers.start(flush="os")
    with honest_client(broker) as honest, contextlib.ExitStack() as stalled:
        for _ in range(4):
            client = stalled.enter_context(RawClient(broker.port))
            client.socket.settimeout(0.5)
            with contextlib.suppress(TimeoutError, ConnectionError):
                client.socket.sendall(CLAIM + bytes(sent))
        with RawClient(broker.port, timeout_s=30) as client:
            started = time.monotonic()
            client.send(produce_request("nowhere", 0, bytes(60 << 20)), 9)
            client.read_frame()
            taken_s = time.monotonic() - started
        honest.goes_on()
    print(f"\n60 MB were answered after {taken_s:.2f} s, the honest client waited {honest.longest_s:.2f} s at most")
    assert taken_s < 15


def test_a_thousand_claims_cost_what_they_sent(brokers: Brokers) -> None:
    broker = brokers.start(flush="os")
    before = broker.resident_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with honest_client(broker) as honest, contextlib.ExitStack() as stalled, RawClient(broker.port) as probe:
        for _ in range(1000):
            client = stalled.enter_context(RawClient(broker.port))
            client.socket.sendall(CLAIM + bytes(5000))
        longest_s = longest_wait_s(probe, 1.0)
        honest.goes_on()
        grown = broker.resident_bytes() - before
    print(f"\n1000 claims: {grown >> 20} MB, a tiny request waited {longest_s * 1000:.0f} ms at most")
    assert grown < 120 << 20
    assert longest_s < 1.0


# -- descriptors


@contextlib.contextmanager
def idle_connections(broker: RealBroker, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as many:
        sockets = []
        for _ in range(count):
            connected = many.enter_context(socket.create_connection(("127.0.0.1", broker.port), 5))
            sockets.append(connected)
        time.sleep(0.3)
        yield sockets


def test_a_topic_made_while_idle_connections_take_what_they_can_is_served(brokers: Brokers) -> None:
    broker = brokers.start(flush="os", open_files=256)
    with honest_client(broker) as honest, idle_connections(broker, 300):
        with RawClient(broker.port) as client:
            assert create_topic(client, "meanwhile", 20) == 0
            for partition in range(20):
                assert client.produce("meanwhile", partition, batch_of([b"a"], timestamp_ms=1)).error_code == 0
            assert [record.value for record in client.read_log("meanwhile", 7)] == [b"a"]
        honest.goes_on()
        assert opened(broker.pid) < 256
    log = broker.log()
    assert "offline" not in log
    assert log.count("see ulimit -n") <= 4, "it is said once, and then counted"


def test_a_hundred_new_partitions_are_made_and_written_with_very_few_descriptors(brokers: Brokers) -> None:
    broker = brokers.start(open_files=64)
    with idle_connections(broker, 100), RawClient(broker.port, timeout_s=60) as client:
        assert create_topic(client, "many", 100) == 0
        for partition in range(100):
            assert client.produce("many", partition, batch_of([b"%d" % partition], timestamp_ms=1)).error_code == 0
        for partition in range(100):
            assert [record.value for record in client.read_log("many", partition)] == [b"%d" % partition]
        client.new_producer_id()
    assert broker.is_running
    assert broker.stop() == 0, "cleanly"
    assert "Traceback" not in broker.log()
    broker.start()
    with RawClient(broker.port) as client:
        assert [record.value for record in client.read_log("many", 99)] == [b"99"]


def test_connections_come_and_go_while_descriptors_are_short_and_waiting_ones_are_kept(brokers: Brokers) -> None:
    broker = brokers.start(flush="os", open_files=128)
    with honest_client(broker) as honest:
        for _ in range(5):
            with idle_connections(broker, 150):
                honest.goes_on(3)
        honest.goes_on()
