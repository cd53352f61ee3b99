"""The short way for fetch requests that are like the one before: who may go it, and that nobody can tell."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import (
    Node,
    RawClient,
    batch_of,
    fetch_request,
    partition_of,
    produce_request,
    simulated,
    values_in,
)
from short_ways import Counted, counted

from semel.broker import fetch_lanes
from semel.broker.authoriser import AllowAll, Operation, ResourceType
from semel.records.control import ControlType
from semel.wire.errors import ErrorCode
from semel.wire.frame import request_bytes
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.fetch import FetchRequest


@pytest.fixture
def short_way(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return counted(monkeypatch, fetch_lanes._Lane)


async def filled(node: Node, count: int = 6) -> RawClient:
    client = await node.client()
    await client.create_topic("t", 2)
    for number in range(count):
        await client.produce("t", batch_of(b"%d" % number))
    return client


async def on_its_way(client: RawClient, short_way: Counted, **options: Any) -> None:
    """Three requests, of which the third goes the short way."""
    for offset in range(3):
        assert values_in(await client.fetch("t", offset, **options))[0] == b"%d" % offset
    assert (short_way.tried, short_way.served) == (1, 1)


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", range(4, 19))
def test_the_answers_are_those_of_the_long_way_byte_by_byte(
    version: int, isolation_level: int, short_way: Counted
) -> None:
    told: dict[bool, list[bytes]] = {}
    for is_open in (True, False):

        @simulated()
        async def tell(node: Node, is_open: bool = is_open) -> None:
            short_way.is_open = is_open
            client = await filled(node)
            topic = node.broker.topics.by_name["t"]
            partition = node.broker.topics.partition("t", 0)
            await client.produce("t", batch_of(b"x" * 20_000))
            partition.append_prepared(batch_of(b"aborted", producer_id=7, transactional=True))
            partition.append_marker(ControlType.ABORT, 7, 0, 0, bumps_epoch=False)
            await client.produce("t", batch_of(b"y"))
            partition.append_prepared(batch_of(b"open", producer_id=8, transactional=True))
            await asyncio.sleep(1)
            key = topic.topic_id if version >= 13 else "t"
            for number, offset in enumerate([0, 1, 2, 3, 7, 9, 10, 11, 12, -1, 5, 1 << 40, 6]):
                request = fetch_request(
                    {(key, 0): offset}, partition_max_bytes=300, isolation_level=isolation_level, max_wait_ms=0
                )
                client.link.send([request_bytes(request, version, 1000 + number, "raw")])
                await asyncio.sleep(1)
            told[is_open] = [frame.replace(topic.topic_id, b"\0" * 16) for frame in client.frames]

        tell()
    assert len(told[True]) == 13
    assert told[True] == told[False]
    assert short_way.tried == 11
    # Not the end, and not three that are no offsets; nor, for who reads what is committed, what is aborted or open.
    assert short_way.served == (7 if isolation_level == 0 else 5)


@pytest.mark.parametrize("count", [1, 100, 127, 128, 20_000])
@simulated()
async def test_records_of_every_size_have_their_length(node: Node, short_way: Counted, count: int) -> None:
    client = await node.client()
    await client.create_topic("t")
    for _ in range(3):
        await client.produce("t", batch_of(b"." * count))
    for offset in (0, 1, 2, 2):
        assert set(values_in(await client.fetch("t", offset))) == {b"." * count}
    assert short_way.served == 2


@simulated()
async def test_what_finds_too_little_is_parked(node: Node, short_way: Counted) -> None:
    client, producer = await filled(node), await node.client()
    await on_its_way(client, short_way, max_wait_ms=1 << 20, min_bytes=70)
    answer = client.send(fetch_request({("t", 0): 5}, max_wait_ms=1 << 20, min_bytes=70), 12)
    await asyncio.sleep(10)
    assert not answer.done()
    await producer.produce("t", batch_of(b"6"))
    assert values_in(partition_of(await asyncio.wait_for(answer, 1), "t")) == [b"5", b"6"]
    answer = client.send(fetch_request({("t", 0): 7}, max_wait_ms=1 << 20, min_bytes=70), 12)
    await asyncio.sleep(10)
    assert not answer.done()
    await producer.produce("t", batch_of(b"seven"))
    assert values_in(partition_of(await asyncio.wait_for(answer, 1), "t")) == [b"seven"]
    assert short_way.tried == 3


@simulated()
async def test_what_is_cold_is_warmed(node: Node, short_way: Counted) -> None:
    await filled(node)
    await node.restart()
    client = await node.client()
    node.broker.topics.partition("t", 0).log.segments[0]._trusted_from = 1 << 30
    await on_its_way(client, short_way)
    node.disk.cold_chance = 1.0
    node.broker.topics.partition("t", 0).log.segments[0]._checked.clear()
    assert values_in(await client.fetch("t", 3)) == [b"3", b"4", b"5"]
    assert (short_way.tried, short_way.served) == (2, 1)


@pytest.mark.parametrize(
    "other",
    [
        fetch_request({("t", 1): 0}),
        fetch_request({("t", 0): 4, ("t", 1): 0}),
        fetch_request({("t", 0): 4}, partition_max_bytes=1000),
        fetch_request({("t", 0): 4}, isolation_level=1),
        fetch_request({("t", 0): 4}, epoch=7),
        fetch_request({("t", 0): 4}, session_epoch=0),
        fetch_request({("t", 0): 4}, rack_id="r"),
    ],
)
@simulated()
async def test_a_lane_is_for_requests_that_differ_in_their_offset_alone(
    node: Node, short_way: Counted, other: FetchRequest
) -> None:
    client = await filled(node)
    await on_its_way(client, short_way)
    await client.ask(other, 12)
    assert values_in(await client.fetch("t", 3)) == [b"3", b"4", b"5"]
    assert (short_way.tried, short_way.served) == (3, 2)


@simulated()
async def test_a_request_with_fields_that_we_do_not_know_gets_no_lane(node: Node, short_way: Counted) -> None:
    client = await filled(node)
    for number in range(4):
        frame = bytearray(request_bytes(fetch_request({("t", 0): number}), 12, number, "raw"))
        frame[-1:] = b"\x01\x63\x01."  # one tagged field, 99, of one byte
        frame[:4] = (len(frame) - 4).to_bytes(4)
        client.link.send([bytes(frame)])
        await asyncio.sleep(1)
    assert len(client.frames) == 4
    assert short_way.tried == 0


@simulated()
async def test_a_session_gets_no_lane(node: Node, short_way: Counted) -> None:
    client = await filled(node)
    first = await client.ask(fetch_request({("t", 0): 0}, session_epoch=0), 12)
    for epoch in range(1, 4):
        request = fetch_request({("t", 0): epoch}, session_id=first.session_id, session_epoch=epoch)
        assert values_in(partition_of(await client.ask(request, 12), "t"))[0] == b"%d" % epoch
    assert short_way.tried == 0


@simulated()
async def test_a_reader_with_an_old_epoch_is_fenced_on_its_way(node: Node, short_way: Counted) -> None:
    client = await filled(node)
    partition = node.broker.topics.partition("t", 0)
    await on_its_way(client, short_way, epoch=partition.leader_epoch)
    partition.leader_epoch += 1
    found = await client.fetch("t", 3, epoch=partition.leader_epoch - 1)
    assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH


@simulated(settings={"fetch.max.bytes": "1500"})
async def test_the_limit_of_the_node_counts_on_the_short_way(node: Node, short_way: Counted) -> None:
    client = await node.client()
    await client.create_topic("t")
    for _ in range(4):
        await client.produce("t", batch_of(b"x" * 1000))
    assert [len(await client.values("t", offset)) for offset in (0, 1, 2)] == [1, 1, 1]
    assert short_way.served == 1


@simulated()
async def test_a_lane_ends_with_its_topic(node: Node, short_way: Counted) -> None:
    client, admin = await filled(node), await node.client()
    await on_its_way(client, short_way)
    await admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert (await client.fetch("t", 3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await admin.create_topic("t")
    await admin.produce("t", batch_of(b"new"))
    for _ in range(3):
        assert values_in(await client.fetch("t")) == [b"new"]


class Revocable(AllowAll):
    may_read = True

    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        return self.may_read or operation is not Operation.READ


@simulated(authoriser=Revocable)
async def test_a_permission_that_is_taken_back_counts_at_once(node: Node, short_way: Counted) -> None:
    client = await filled(node)
    await on_its_way(client, short_way)
    node.broker.authoriser.may_read = False  # type: ignore[attr-defined]
    assert (await client.fetch("t", 3)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@simulated()
async def test_one_connection_may_produce_and_fetch_in_turns(node: Node, short_way: Counted) -> None:
    client = await filled(node)
    for number in range(6):
        response = await client.ask(produce_request("t", batch_of(b"%d" % (6 + number))), 12)
        assert response.responses[0].partition_responses[0].base_offset == 6 + number
        assert values_in(await client.fetch("t", number))[0] == b"%d" % number
        assert values_in(await client.fetch("t", 6 + number)) == [b"%d" % (6 + number)]
