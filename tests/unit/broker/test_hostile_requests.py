"""Requests that nobody should send: their connection gets its error or is closed, everyone else goes on."""

from __future__ import annotations

import asyncio
import random
from struct import pack

import pytest
from broker_harness import Node, RawClient, batch_of, fetch_request, produce_request, simulated

from semel.broker.handlers import HANDLERS
from semel.wire.apis import API, request_class
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_response, request_bytes
from semel.wire.spec.api_versions import ApiVersionsResponse
from semel.wire.spec.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def header(key: int, version: int, correlation_id: int = 7) -> bytes:
    return pack(">hhih", key, version, correlation_id, -1)


async def is_closed_by(client: RawClient, data: bytes) -> bool:
    client.link.send([data])
    try:
        await asyncio.wait_for(client.is_closed.wait(), 5)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("version", [6, 77, 32767, -1, -32768])
@simulated()
async def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_form(node: Node, version: int) -> None:
    client = await node.client()
    client.link.send([framed(header(18, version) + b"\x00garbage that nobody can read")])
    await asyncio.sleep(1)
    correlation_id, response = read_response(ApiVersionsResponse, 0, client.frames.popleft())
    assert (correlation_id, response.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 5)]
    assert not client.is_closed.is_set(), "it may ask again"


@simulated()
async def test_unknown_apis_and_versions_close_their_connection_alone(node: Node) -> None:
    other = await node.client()
    await other.create_topic("t")
    unknown = [header(key, 0) for key in (-1, 5, 999, 32767)]
    unserved = [header(key, api.min_version) for key, api in API.items() if key not in HANDLERS]
    wrong_versions = [
        header(key, version)
        for key, served in HANDLERS.items()
        for version in (served.min_version - 1, served.max_version + 1, -1, 32767)
        if key != 18 and not served.min_version <= version <= served.max_version
    ]
    for data in [*unknown, *unserved, *wrong_versions]:
        client = await node.client()
        assert await is_closed_by(client, framed(data + bytes(20))), data
        assert not client.frames
    assert (await other.produce("t", batch_of(b"a"))).error_code == 0
    assert len(node.broker.server.connections) == 1
    assert not node.broken


@simulated()
async def test_every_truncation_of_a_request_closes_its_connection_alone(node: Node) -> None:
    other = await node.client()
    await other.create_topic("t")
    whole = request_bytes(produce_request("t", batch_of(b"a")), 12, 1, "raw")[4:]
    for length in range(8, len(whole)):
        client = await node.client()
        assert await is_closed_by(client, framed(whole[:length])), length
    assert node.broker.topics.partition("t", 0).log.end_offset == 0
    assert node.broker.server.budget.used_bytes == 0


def waits_long(frame: bytes) -> bool:
    """Whether it is a fetch that may keep its connection for longer than the test takes: nothing is wrong with that."""
    if frame[4:6] != b"\0\1":
        return False
    body = frame[18:] if frame[7] >= 15 else frame[22:]  # behind the header, and the replica's id while there is one
    return int.from_bytes(body[:4], "big") > 60_000


@pytest.mark.parametrize("seed", range(3))
@simulated()
async def test_garbage_hurts_nobody_else(node: Node, seed: int) -> None:
    chance = random.Random(seed)
    other = await node.client()
    await other.create_topic("t")
    await other.produce("t", batch_of(b"kept"))
    requests = [
        request_bytes(produce_request("t", batch_of(b"x")), 12, 1, "raw"),
        request_bytes(fetch_request({("t", 0): 0}), 12, 1, "raw"),
        *(request_bytes(request_class(key)(), served.max_version, 1, "raw") for key, served in HANDLERS.items()),
    ]
    for _ in range(300):
        data = bytearray(chance.choice(requests))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if waits_long(data):
            continue
        client = await node.client()
        client.link.send([bytes(data)])
        await asyncio.sleep(0.01)
        client.close()
    await asyncio.sleep(120)
    assert (await other.values("t"))[0] == b"kept"
    assert not node.broken
    assert len(node.broker.server.connections) == 1
    assert node.broker.server.budget.used_bytes == 0


@simulated(settings={"max.connections": "3"})
async def test_the_limit_of_connections_is_that_of_the_settings_and_can_be_changed(node: Node) -> None:
    clients = [await node.client() for _ in range(4)]
    await asyncio.sleep(1)
    assert [client.is_closed.is_set() for client in clients] == [False, False, False, True]
    change = ConfigAlteration(name="max.connections", config_operation=0, value="4")
    resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    response = await clients[0].ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert response.responses[0].error_code == 0
    more = [await node.client() for _ in range(2)]
    await asyncio.sleep(1)
    assert [client.is_closed.is_set() for client in more] == [False, True]


@simulated(settings={"socket.request.max.bytes": "1000"})
async def test_the_largest_request_is_that_of_the_settings(node: Node) -> None:
    client = await node.client()
    assert await is_closed_by(client, pack(">i", 1001))
    assert not await is_closed_by(await node.client(), pack(">i", 1000))


@simulated(settings={"queued.max.request.bytes": "-1"})
async def test_memory_without_a_limit_serves_large_requests(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    assert (await client.produce("t", batch_of(b"x" * 700_000))).error_code == 0


@simulated(settings={"connections.max.idle.ms": "1000"})
async def test_idle_connections_are_closed_after_the_time_of_the_settings(node: Node) -> None:
    client = await node.client()
    await asyncio.sleep(3)
    assert client.is_closed.is_set()


@pytest.mark.parametrize("key", HANDLERS)
@simulated()
async def test_an_empty_request_of_every_api_and_version_is_answered(node: Node, key: int) -> None:
    served = HANDLERS[key]
    for version in range(served.min_version, served.max_version + 1):
        client = await node.client()
        request = request_class(key)()
        if key == 0:
            request.acks = 1  # type: ignore[attr-defined]
        answer = await asyncio.wait_for(client.ask(request, version), 60)
        assert answer is not None
