"""Fetch sessions (KIP-227) through the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import Node, RawClient, batch_of, fetch_request, partition_of, simulated, values_in

from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchResponse, ForgottenTopic

FOREVER = 1 << 30
INITIAL, FINAL = 0, -1


async def begun(node: Node, topics: str = "ab") -> tuple[RawClient, FetchResponse]:
    """A session over topics of one record each."""
    client = await node.client()
    for name in topics:
        await client.create_topic(name)
        await client.produce(name, batch_of(name.encode()))
    offsets = {(name, 0): 0 for name in topics}
    response = await client.ask(fetch_request(offsets, session_epoch=INITIAL), 12)
    assert isinstance(response, FetchResponse)
    return client, response


async def next_of(client: RawClient, session_id: int, epoch: int, request: FetchRequest | None = None) -> Any:
    request = request or fetch_request({})
    request.session_id, request.session_epoch = session_id, epoch
    return await client.ask(request, 12)


def mentioned(response: FetchResponse) -> dict[str, int]:
    return {topic.topic: partition.error_code for topic in response.responses for partition in topic.partitions}


@simulated()
async def test_a_full_fetch_begins_a_session_and_mentions_everything(node: Node) -> None:
    _, first = await begun(node)
    assert first.error_code == 0
    assert first.session_id > 0
    assert mentioned(first) == {"a": 0, "b": 0}
    assert values_in(partition_of(first, "a")) == [b"a"]
    assert len(node.broker.fetch_sessions) == 1


@simulated()
async def test_a_fetch_without_a_session_keeps_none(node: Node) -> None:
    client = await node.client()
    await client.create_topic("a")
    response = await client.ask(fetch_request({("a", 0): 0}, session_epoch=FINAL), 12)
    assert response.session_id == 0
    empty = await client.ask(fetch_request({}, session_epoch=INITIAL), 12)
    assert empty.session_id == 0
    assert len(node.broker.fetch_sessions) == 0


@simulated()
async def test_an_incremental_fetch_reads_what_was_asked_for_before_and_mentions_only_news(node: Node) -> None:
    client, first = await begun(node)
    moved_on = fetch_request({("a", 0): 1, ("b", 0): 1})
    second = await next_of(client, first.session_id, 1, moved_on)
    assert mentioned(second) == {}
    assert second.session_id == first.session_id
    await client.produce("b", batch_of(b"b2"))
    third = await next_of(client, first.session_id, 2)
    assert mentioned(third) == {"b": 0}
    assert values_in(partition_of(third, "b")) == [b"b2"]


@simulated()
async def test_partitions_with_nothing_new_are_not_even_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    client, first = await begun(node, "abc")
    await next_of(client, first.session_id, 1, fetch_request({(name, 0): 1 for name in "abc"}))
    read: list[str] = []
    fetch = Partition.fetch
    monkeypatch.setattr(Partition, "fetch", lambda self, *a, **o: read.append(self.topic) or fetch(self, *a, **o))
    await client.produce("b", batch_of(b"b2"))
    assert mentioned(await next_of(client, first.session_id, 2)) == {"b": 0}
    assert read == ["b"]


@simulated()
async def test_a_new_high_watermark_is_news_even_without_data_for_the_reader(node: Node) -> None:
    client, first = await begun(node, "a")
    await next_of(client, first.session_id, 1, fetch_request({("a", 0): 1}))
    await client.produce("a", batch_of(b"a2"))
    large = fetch_request({("a", 0): 2})
    third = await next_of(client, first.session_id, 2, large)
    assert mentioned(third) == {"a": 0}
    assert partition_of(third, "a").high_watermark == 2
    assert mentioned(await next_of(client, first.session_id, 3)) == {}


@simulated()
async def test_partitions_are_added_and_forgotten(node: Node) -> None:
    client, first = await begun(node, "ab")
    await client.create_topic("c")
    change = fetch_request(
        {("c", 0): 0, ("b", 0): 1}, forgotten_topics_data=[ForgottenTopic(topic="a", partitions=[0])]
    )
    second = await next_of(client, first.session_id, 1, change)
    assert mentioned(second) == {"c": 0}
    for name in "abc":
        await client.produce(name, batch_of(b"more"))
    third = await next_of(client, first.session_id, 2)
    assert mentioned(third) == {"b": 0, "c": 0}


@simulated()
async def test_a_partition_that_comes_back_is_mentioned_again(node: Node) -> None:
    client, first = await begun(node, "a")
    await next_of(client, first.session_id, 1, fetch_request({("a", 0): 1}))
    forget = fetch_request({}, forgotten_topics_data=[ForgottenTopic(topic="a", partitions=[0])])
    assert mentioned(await next_of(client, first.session_id, 2, forget)) == {}
    back = await next_of(client, first.session_id, 3, fetch_request({("a", 0): 1}))
    assert mentioned(back) == {"a": 0}


@simulated()
async def test_errors_are_mentioned_until_they_are_over(node: Node) -> None:
    client, first = await begun(node, "a")
    missing = fetch_request({("a", 0): 1, ("z", 0): 0})
    second = await next_of(client, first.session_id, 1, missing)
    assert mentioned(second) == {"z": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    third = await next_of(client, first.session_id, 2)
    assert mentioned(third) == {"z": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    await client.create_topic("z")
    fourth = await next_of(client, first.session_id, 3)
    assert mentioned(fourth) == {"z": 0}
    assert mentioned(await next_of(client, first.session_id, 4)) == {}


@pytest.mark.parametrize("epoch", [2, 5, 1 << 30])
@simulated()
async def test_a_wrong_epoch_is_refused_and_the_session_stays_as_it_was(node: Node, epoch: int) -> None:
    client, first = await begun(node)
    wrong = await next_of(client, first.session_id, epoch, fetch_request({("z", 0): 0}))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    right = await next_of(client, first.session_id, 1, fetch_request({("a", 0): 1, ("b", 0): 1}))
    assert (right.error_code, mentioned(right)) == (0, {})


@simulated()
async def test_a_request_that_comes_twice_is_noticed(node: Node) -> None:
    client, first = await begun(node)
    assert (await next_of(client, first.session_id, 1)).error_code == 0
    assert (await next_of(client, first.session_id, 1)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@simulated()
async def test_an_unknown_session_is_refused(node: Node) -> None:
    client, first = await begun(node)
    unknown = await next_of(client, first.session_id ^ 1, 1)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    await node.restart()
    client = await node.client()
    after = await next_of(client, first.session_id, 1)
    assert after.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@simulated()
async def test_the_final_epoch_ends_a_session_and_still_reads(node: Node) -> None:
    client, first = await begun(node)
    last = await next_of(client, first.session_id, FINAL, fetch_request({("a", 0): 0}))
    assert (last.session_id, mentioned(last)) == (0, {"a": 0})
    assert len(node.broker.fetch_sessions) == 0
    assert (await next_of(client, first.session_id, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@simulated()
async def test_a_full_fetch_takes_the_place_of_the_session_it_names(node: Node) -> None:
    client, first = await begun(node)
    again = await next_of(client, first.session_id, INITIAL, fetch_request({("a", 0): 0}))
    assert again.session_id not in (0, first.session_id)
    assert len(node.broker.fetch_sessions) == 1


@simulated(settings={"max.incremental.fetch.session.cache.slots": "2"})
async def test_when_the_cache_is_full_only_an_idle_session_makes_room(node: Node) -> None:
    client, first = await begun(node, "a")
    second = await client.ask(fetch_request({("a", 0): 0}, session_epoch=INITIAL), 12)
    third = await client.ask(fetch_request({("a", 0): 0}, session_epoch=INITIAL), 12)
    assert (third.error_code, third.session_id) == (0, 0), "read, but not kept"
    assert values_in(partition_of(third, "a")) == [b"a"]
    await asyncio.sleep(119)
    assert (await next_of(client, first.session_id, 1)).error_code == 0, "used a moment ago"
    await asyncio.sleep(2)
    fourth = await client.ask(fetch_request({("a", 0): 0}, session_epoch=INITIAL), 12)
    assert fourth.session_id > 0
    assert len(node.broker.fetch_sessions) == 2
    assert (await next_of(client, second.session_id, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (await next_of(client, first.session_id, 2)).error_code == 0


@simulated(settings={"max.incremental.fetch.session.cache.slots": "0"})
async def test_without_slots_there_are_no_sessions(node: Node) -> None:
    _, first = await begun(node)
    assert (first.session_id, mentioned(first)) == (0, {"a": 0, "b": 0})


@simulated()
async def test_a_session_goes_on_as_it_began_with_names_or_with_ids(node: Node) -> None:
    client, first = await begun(node, "a")
    topic_id = node.broker.topics.by_name["a"].topic_id
    request = fetch_request({(topic_id, 0): 0}, session_id=first.session_id, session_epoch=1)
    assert (await client.ask(request, 13)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@simulated()
async def test_sessions_by_topic_id(node: Node) -> None:
    client, _ = await begun(node, "a")
    topic_id = node.broker.topics.by_name["a"].topic_id
    first = await client.ask(fetch_request({(topic_id, 0): 1}, session_epoch=INITIAL), 17)
    assert first.session_id > 0
    await client.produce("a", batch_of(b"a2"))
    second = await client.ask(fetch_request({}, session_id=first.session_id, session_epoch=1), 17)
    assert values_in(partition_of(second, topic_id)) == [b"a2"]
    forget = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
    request = fetch_request({}, session_id=first.session_id, session_epoch=2, forgotten_topics_data=forget)
    assert not (await client.ask(request, 17)).responses


@simulated()
async def test_an_incremental_poll_waits_for_any_of_its_partitions(node: Node) -> None:
    client, first = await begun(node)
    producer = await node.client()
    await next_of(client, first.session_id, 1, fetch_request({("a", 0): 1, ("b", 0): 1}))
    request = fetch_request({}, max_wait_ms=FOREVER, session_id=first.session_id, session_epoch=2)
    answer = client.send(request, 12)
    await asyncio.sleep(100)
    assert not answer.done()
    await producer.produce("b", batch_of(b"woken"))
    assert mentioned(await asyncio.wait_for(answer, 1)) == {"b": 0}


@simulated()
async def test_partitions_that_gave_data_wait_for_the_others(node: Node) -> None:
    """With room for one batch per answer, a partition with much data does not starve the rest."""
    client = await node.client()
    for name in "ab":
        await client.create_topic(name)
        for number in range(3):
            await client.produce(name, batch_of(b"%d" % number))
    request = fetch_request({("a", 0): 0, ("b", 0): 0}, session_epoch=INITIAL, max_bytes=1)
    response = await client.ask(request, 12)
    order = []
    for epoch in range(1, 5):
        (name,) = [topic.topic for topic in response.responses if topic.partitions[0].records]
        order.append(name)
        offset = partition_of(response, name)
        assert values_in(offset)
        request = fetch_request({}, session_id=response.session_id, session_epoch=epoch, max_bytes=1)
        response = await client.ask(request, 12)
    assert order == ["a", "b", "a", "b"]


@simulated()
async def test_epochs_begin_again_after_the_largest(node: Node) -> None:
    client, first = await begun(node, "a")
    session = node.broker.fetch_sessions._sessions[first.session_id]
    session.epoch = (1 << 31) - 1
    assert (await next_of(client, first.session_id, (1 << 31) - 1)).error_code == 0
    assert (await next_of(client, first.session_id, 1)).error_code == 0
