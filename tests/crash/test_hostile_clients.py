"""Clients that break the protocol, stall, flood or never read, against a real broker, while an honest client goes on.

Each test runs an honest producer and reader beside the hostile ones: all its records are there in the end, once and in
order, no answer took long, the broker's memory stayed bounded, and its log shows no trace of an unexpected failure.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from honest_client import honest_client

from raw_client import Disconnected, RawClient, batch_of, fetch_request, produce_request
from real_broker import Brokers
from semel.wire.apis import API
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_response, request_bytes
from semel.wire.schema import Request
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel.wire.spec.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel.wire.spec.leave_group import LeaveGroupRequest, LeavingMember
from semel.wire.spec.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.alone

SEED = int(os.environ.get("SEMEL_HOSTILE_SEED", "20260727"))
MUTATIONS = 3000
LIMIT_BYTES = 100 << 20
GOLDEN = Path(__file__).parent.parent / "golden" / "wire"


def is_closed_by_the_broker(client: RawClient) -> bool:
    try:
        while client.socket.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def test_garbage_closes_its_own_connection_alone(brokers: Brokers) -> None:
    broker = brokers.start()
    chance = random.Random(SEED)
    with honest_client(broker):
        for _ in range(300):
            with RawClient(broker.port) as client, contextlib.suppress(OSError):
                client.socket.sendall(chance.randbytes(chance.randrange(1, 5000)))
        for text in (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 30):
            with RawClient(broker.port, timeout_s=5) as client:
                client.socket.sendall(text)
                assert is_closed_by_the_broker(client)


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 1, 7, LIMIT_BYTES + 1, (1 << 31) - 1])
def test_an_impossible_length_closes_the_connection(brokers: Brokers, length: int) -> None:
    broker = brokers.start()
    with honest_client(broker), RawClient(broker.port, timeout_s=5) as client:
        client.socket.sendall(struct.pack(">i", length) + b"\0" * 64)
        assert is_closed_by_the_broker(client)


def test_unknown_apis_and_versions_close_the_connection_but_api_versions_is_answered(brokers: Brokers) -> None:
    broker = brokers.start()
    with honest_client(broker):
        for key in (-1, 9999, 32767, *range(100)):
            for version in (-1, 99, 32767):
                if key == 18:
                    continue
                with RawClient(broker.port, timeout_s=5) as client:
                    client.socket.sendall(struct.pack(">ihhih", 10, key, version, 7, -1))
                    assert is_closed_by_the_broker(client)
        with RawClient(broker.port, timeout_s=5) as client:
            for version in (6, 99, 32767):
                client.socket.sendall(struct.pack(">ihhih", 11, 18, version, 7, -1) + b"\0")
                correlation_id, answer = read_response(ApiVersionsResponse, 0, client.read_frame())
                assert correlation_id == 7
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
                assert [api.api_key for api in answer.api_keys] == [18]
            assert client.call(versions_request(), 4, ApiVersionsResponse).error_code == 0


def versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="raw", client_software_version="1")


def test_half_frames_and_silence_cost_little_and_block_nobody(brokers: Brokers) -> None:
    broker = brokers.start()
    before = broker.resident_bytes()
    frame = request_bytes(versions_request(), 3, 1, "half")
    with honest_client(broker) as honest, contextlib.ExitStack() as silent:
        for number in range(400):
            client = silent.enter_context(RawClient(broker.port))
            client.socket.sendall(frame[: number % len(frame)])
        honest.goes_on()
        assert broker.resident_bytes() - before < 60 << 20


def test_frames_that_claim_much_and_come_slowly_starve_nobody(brokers: Brokers) -> None:
    broker = brokers.start()
    before = broker.resident_bytes()
    with honest_client(broker) as honest, contextlib.ExitStack() as slow:
        clients = [slow.enter_context(RawClient(broker.port)) for _ in range(30)]
        for client in clients:
            client.socket.sendall(struct.pack(">ihhih", LIMIT_BYTES, 0, 9, 1, -1))
        for _ in range(30):
            for client in clients:
                client.socket.sendall(b"\0" * 1024)
            time.sleep(0.03)
        honest.goes_on()
        assert broker.resident_bytes() - before < 100 << 20


def test_memory_for_requests_is_bounded_and_given_back(brokers: Brokers) -> None:
    """More announced and really sent than the budget holds: it is read in turns, and all of it is answered."""
    broker = brokers.start(flush="os", settings={"queued.max.request.bytes": str(128 << 20)})
    before = broker.resident_bytes()
    frame_bytes = 20 << 20
    done: list[int] = []

    def send_one(number: int) -> None:
        with RawClient(broker.port, timeout_s=40) as client:
            # A produce of an unknown topic, with a batch that is no batch: read whole, then refused.
            request = produce_request("nowhere", 0, bytes(frame_bytes))
            client.send(request, 9)
            client.read_frame()
            done.append(number)

    with honest_client(broker):
        senders = [threading.Thread(target=send_one, args=(number,), daemon=True) for number in range(12)]
        for sender in senders:
            sender.start()
        peak = 0
        while any(sender.is_alive() for sender in senders):
            peak = max(peak, broker.resident_bytes() - before)
            time.sleep(0.02)
        assert sorted(done) == list(range(12))
    assert peak < 220 << 20


def test_readers_that_never_read_cost_bounded_memory(brokers: Brokers) -> None:
    broker = brokers.start(flush="os")
    with RawClient(broker.port) as client:
        client.make_topic("large")
        for number in range(40):
            batch = batch_of([bytes([number]) * 1_000_000], timestamp_ms=1)
            assert client.produce("large", 0, batch).error_code == 0
        for number in range(50):
            client.make_topic(f"one-of-many-{number}")
    before = broker.resident_bytes()
    with honest_client(broker) as honest, contextlib.ExitStack() as stuck:
        fetches = b"".join(
            request_bytes(fetch_request("large", 0, offset % 40, max_bytes=1 << 20), 11, offset, "stuck")
            for offset in range(60)
        )
        listings = request_bytes(MetadataRequest(topics=None), 9, 1, "stuck") * 5000
        for flood in [fetches, listings] * 40:
            client = stuck.enter_context(RawClient(broker.port, timeout_s=1))
            with contextlib.suppress(TimeoutError):
                client.socket.settimeout(0.05)
                client.socket.sendall(flood)
        honest.goes_on(within_s=20)
        grown = broker.resident_bytes() - before
    print(f"\n80 readers that never read: {grown >> 20} MB more")
    assert grown < 120 << 20
    assert broker.resident_bytes() - before < 100 << 20


def test_connections_beyond_the_limit_are_closed_and_places_are_given_back(brokers: Brokers) -> None:
    broker = brokers.start(settings={"max.connections": "50"})
    with honest_client(broker):
        with contextlib.ExitStack() as many:
            clients = [many.enter_context(RawClient(broker.port, timeout_s=5)) for _ in range(120)]
            answered = 0
            for client in clients:
                with contextlib.suppress(Disconnected, ConnectionError):
                    client.call(versions_request(), 3, ApiVersionsResponse)
                    answered += 1
            assert answered == 49
        deadline = time.monotonic() + 10
        while True:
            try:
                with RawClient(broker.port) as client:
                    client.call(versions_request(), 3, ApiVersionsResponse)
                break
            except ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
    assert "max.connections is 50" in broker.log()


def test_connections_that_come_and_go_leave_nothing_behind(brokers: Brokers) -> None:
    broker = brokers.start()
    frame = request_bytes(versions_request(), 3, 1, "brief")
    with honest_client(broker):
        for number in range(1500):
            with RawClient(broker.port) as client:
                client.socket.sendall(frame[: len(frame) - number % 3])
                if number % 5 == 0:
                    # Reset instead of a clean end.
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(1.5)
        descriptors = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
        assert descriptors < 60


def seeds_of_mutations() -> list[bytes]:
    """Valid frames: what real clients sent once, and requests that reach far into the handlers."""
    frames = []
    for path in sorted(GOLDEN.glob("*.bin")):
        data = path.read_bytes()
        length = int.from_bytes(data[:4], "big")
        frames.append(data if length + 4 == len(data) else struct.pack(">i", len(data)) + data)
    requests: list[tuple[Request, range]] = [
        (versions_request(), range(5)),
        (MetadataRequest(topics=[MetadataRequestTopic(name="mutated")]), range(4, 10)),
        (fetch_request("mutated", 0, 0), range(4, 12)),
        (produce_request("mutated", 0, batch_of([b"a", b"b"], timestamp_ms=1)), range(3, 12)),
        (produce_request("mutated", 0, batch_of([b"a" * 900], timestamp_ms=1, codec=4)), range(7, 12)),
        (InitProducerIdRequest(transaction_timeout_ms=1), range(5)),
        (
            ListOffsetsRequest(
                topics=[
                    ListOffsetsTopic(name="mutated", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
                ]
            ),
            range(1, 8),
        ),
        (
            CreateTopicsRequest(
                topics=[CreatableTopic(name="never", num_partitions=1, replication_factor=1)],
                timeout_ms=1,
                validate_only=True,
            ),
            range(2, 8),
        ),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="mutated", count=2)], timeout_ms=1, validate_only=True
            ),
            range(4),
        ),
    ]
    return frames + [request_bytes(request, v, 5, "mutant") for request, versions in requests for v in versions]


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """A frame whose length is right again, so that its contents are looked at."""
    body = bytearray(frame[4:])
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        kind = chance.randrange(5)
        at = chance.randrange(len(body)) if body else 0
        if kind == 0 and body:
            body[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and body:
            body[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del body[at : at + chance.randrange(1, 9)]
        elif kind == 3:
            body[at:at] = chance.randbytes(chance.randrange(1, 9))
        else:
            body[at : at + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 5))
    return struct.pack(">i", len(body)) + bytes(body)


def test_thousands_of_mutated_requests_are_refused_or_answered(brokers: Brokers) -> None:
    broker = brokers.start(flush="os", settings={"log.flush.interval.messages": "1000"})
    chance = random.Random(SEED)
    print(f"\nrepeat with SEMEL_HOSTILE_SEED={SEED}")
    with RawClient(broker.port) as client:
        client.make_topic("mutated")
    seeds = [frame for frame in seeds_of_mutations() if int.from_bytes(frame[4:6], "big") in API]
    with honest_client(broker):
        client = RawClient(broker.port, timeout_s=0.5)
        for number in range(MUTATIONS):
            try:
                client.socket.sendall(mutated(chance.choice(seeds), chance))
                # Most connections end at once; those that go on are used again.
                client.socket.settimeout(0.001 if number % 50 else 0.03)
                with contextlib.suppress(TimeoutError):
                    if not client.socket.recv(65536):
                        raise Disconnected("as expected")
            except ConnectionError:
                client.close()
                client = RawClient(broker.port, timeout_s=0.5)
        client.close()
    assert broker.resident_bytes() < 250 << 20


def test_names_from_outside_forge_no_lines_in_the_log(brokers: Brokers) -> None:
    broker = brokers.start(flush="os")
    forged = "x\n2026-01-01 00:00:00,000 CRITICAL semel forged\r\x1b[31m"
    with RawClient(broker.port) as client:
        client.call_any(FindCoordinatorRequest(key=forged, key_type=0), 3)
        request = JoinGroupRequest(
            group_id=forged,
            session_timeout_ms=6000,
            rebalance_timeout_ms=6000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        client.socket.sendall(request_bytes(request, 3, 1, forged))
        client.read_frame()
        leaving = LeaveGroupRequest(group_id=forged, members=[LeavingMember(member_id=forged)])
        client.call_any(leaving, 5)
        client.call_any(InitProducerIdRequest(transactional_id=forged, transaction_timeout_ms=60_000), 4)
    assert broker.stop() == 0
    log = broker.log()
    assert "forged" in log
    assert "\x1b" not in log
    assert "\r" not in log
    assert not [line for line in log.split("\n") if line.startswith("2026-01-01 00:00:00,000 CRITICAL")]
