"""Fetch through the wire: long polls, limits, topic ids, epochs, and the pins of what is sent."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from broker_harness import (
    NOW_MS,
    Node,
    RawClient,
    batch_of,
    fetch_request,
    headers_in,
    partition_of,
    simulated,
    values_in,
)

from semel.records.batch import read_header
from semel.records.control import ControlType
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState

FOREVER = 1 << 30


def pins(node: Node, topic: str = "t") -> int:
    log = node.broker.topics.partition(topic, 0).log
    return sum(cast(Any, segment.file).pins for segment in log.segments)


async def filled(node: Node, *values: bytes, topic: str = "t") -> RawClient:
    client = await node.client()
    await client.create_topic(topic)
    for value in values:
        await client.produce(topic, batch_of(value))
    return client


# -- what is read


@pytest.mark.parametrize("version", range(4, 19))
@simulated()
async def test_batches_are_read_in_every_version(node: Node, version: int) -> None:
    client = await filled(node, b"a", b"b")
    topic: str | bytes = "t" if version < 13 else node.broker.topics.by_name["t"].topic_id
    response = await client.ask(fetch_request({(topic, 0): 0}), version)
    found = partition_of(response, topic)
    assert values_in(found) == [b"a", b"b"]
    assert (found.high_watermark, found.last_stable_offset) == (2, 2)
    assert [header.base_offset for header in headers_in(found)] == [0, 1]


@simulated()
async def test_reading_begins_with_the_batch_that_holds_the_offset(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a", b"b", b"c"))
    await client.produce("t", batch_of(b"d"))
    assert await client.values("t", 1) == [b"a", b"b", b"c", b"d"]
    assert await client.values("t", 3) == [b"d"]
    assert await client.values("t", 4) == []


@simulated()
async def test_offsets_that_are_not_there_have_their_code(node: Node) -> None:
    client = await filled(node, b"a")
    for offset in (-1, 2, 1 << 40):
        found = await client.fetch("t", offset)
        assert (found.error_code, found.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@simulated()
async def test_what_is_not_there_has_its_code(node: Node) -> None:
    client = await filled(node, b"a")
    response = await client.ask(fetch_request({("t", 7): 0, ("nobody", 0): 0}), 12)
    assert partition_of(response, "t", 7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition_of(response, "nobody").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = b"\x0a" * 16
    response = await client.ask(fetch_request({(unknown, 0): 0}), 13)
    assert partition_of(response, unknown).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@simulated()
async def test_a_damaged_batch_is_reported_and_never_served(node: Node) -> None:
    client = await filled(node, b"a" * 100, b"b" * 100)
    await node.stop()
    (name,) = [name for name in node.disk.list_dir("/data/t-0") if name.endswith(".log")]
    node.disk.flip_bit(f"/data/t-0/{name}", 100, 0)
    await node.start()
    client = await node.client()
    found = await client.fetch("t")
    assert found.error_code == ErrorCode.CORRUPT_MESSAGE
    assert not found.records
    assert await client.values("t", 1) == [b"b" * 100]


@simulated()
async def test_a_reader_of_committed_data_stops_at_an_open_transaction(node: Node) -> None:
    client = await filled(node, b"before")
    partition = node.broker.topics.partition("t", 0)
    batch = batch_of(b"open", producer_id=7, transactional=True)
    partition.append_prepared(batch)
    await client.produce("t", batch_of(b"after"))
    found = await client.fetch("t", isolation_level=1)
    assert (values_in(found), found.last_stable_offset, found.high_watermark) == ([b"before"], 1, 3)
    assert list(found.aborted_transactions or ()) == []
    assert await client.values("t") == [b"before", b"open", b"after"]
    partition.append_marker(ControlType.ABORT, 7, 0, 0, bumps_epoch=False)
    await asyncio.sleep(1)
    found = await client.fetch("t", isolation_level=1)
    assert found.last_stable_offset == 4
    assert [(aborted.producer_id, aborted.first_offset) for aborted in found.aborted_transactions or ()] == [(7, 1)]
    assert (await client.fetch("t")).aborted_transactions is None


# -- limits


@simulated()
async def test_a_partition_gives_no_more_than_its_limit_but_at_least_one_batch(node: Node) -> None:
    client = await filled(node, *[b"x" * 1000] * 5)
    size = len(batch_of(b"x" * 1000))
    for limit, count in ((0, 1), (1, 1), (size, 1), (size * 2, 2), (size * 3 - 1, 2), (size * 9, 5)):
        found = await client.fetch("t", partition_max_bytes=limit)
        assert len(values_in(found)) == count
        assert len(found.records) <= max(limit, size)


@simulated()
async def test_an_answer_gives_no_more_than_its_limit_but_at_least_one_batch_in_all(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", partitions=4)
    size = len(batch_of(b"x" * 1000))
    for index in range(4):
        await client.produce("t", batch_of(b"x" * 1000), partition=index)
    offsets = {("t", index): 0 for index in range(4)}
    for limit, counts in (
        (1, [1, 0, 0, 0]),
        (size * 2, [1, 1, 0, 0]),
        (size * 2 + 5, [1, 1, 0, 0]),
        (size * 9, [1] * 4),
    ):
        response = await client.ask(fetch_request(offsets, max_bytes=limit), 12)
        assert [len(values_in(partition_of(response, "t", index))) for index in range(4)] == counts


@simulated(settings={"fetch.max.bytes": "1500"})
async def test_the_limit_of_the_node_counts_as_well(node: Node) -> None:
    client = await filled(node, *[b"x" * 1000] * 3)
    assert len(await client.values("t")) == 1


# -- long polls


@simulated()
async def test_a_poll_is_woken_by_a_produce(node: Node) -> None:
    client, producer = await filled(node), await node.client()
    answer = client.send(fetch_request({("t", 0): 0}, max_wait_ms=FOREVER), 12)
    await asyncio.sleep(1000)
    assert not answer.done()
    await producer.produce("t", batch_of(b"a"))
    response = await asyncio.wait_for(answer, 1)
    assert values_in(partition_of(response, "t")) == [b"a"]


@simulated()
async def test_a_poll_is_woken_by_the_flush_not_by_the_append(node: Node) -> None:
    client, producer = await filled(node, b"a"), await node.client()
    answer = client.send(fetch_request({("t", 0): 1}, max_wait_ms=FOREVER), 12)
    node.hold_flushes()
    await producer.produce("t", batch_of(b"b"), acks=1)
    await asyncio.sleep(50)
    assert not answer.done()
    assert values_in(partition_of(await asyncio.wait_for(answer, 11), "t")) == [b"b"]


@simulated()
async def test_a_poll_is_tried_when_it_comes_and_once_after_whatever_woke_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, producer = await filled(node), await node.client()
    partition = node.broker.topics.partition("t", 0)
    tried = []
    fetch = Partition.fetch
    monkeypatch.setattr(Partition, "fetch", lambda *args, **options: (tried.append(1), fetch(*args, **options))[1])
    answer = client.send(fetch_request({("t", 0): 0}, max_wait_ms=FOREVER), 12)
    await asyncio.sleep(10)
    assert len(tried) == 1
    for _ in range(3):
        partition.log.append(batch := batch_of(b"a"), read_header(batch), partition.leader_epoch, NOW_MS)
        partition.advance(partition.log.end_offset)
        assert len(tried) == 1, "never from inside of what wakes it"
    await asyncio.sleep(0)
    assert len(tried) == 2
    assert len(partition.watchers) == 0, "answered in that turn of the loop"
    assert values_in(partition_of(await answer, "t")) == [b"a"] * 3
    assert len(await producer.values("t")) == 3


@pytest.mark.parametrize("isolation_level", [0, 1])
@simulated()
async def test_a_poll_that_is_woken_looks_at_what_has_changed(
    node: Node, isolation_level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, producer = await node.client(), await node.client()
    await client.create_topic("t", 4)
    for index in range(4):
        await producer.produce("t", batch_of(b"before"), partition=index)
    looked_at = []
    fetch = Partition.fetch

    def looking(partition: Partition, *args: Any, **options: Any) -> Any:
        looked_at.append(partition.index)
        return fetch(partition, *args, **options)

    monkeypatch.setattr(Partition, "fetch", looking)
    size = len(batch_of(b"a"))
    places = {("t", index): 1 for index in range(4)}
    request = fetch_request(places, max_wait_ms=FOREVER, min_bytes=2 * size, isolation_level=isolation_level)
    answer = client.send(request, 12)
    await asyncio.sleep(1)
    assert looked_at == [0, 1, 2, 3]
    looked_at.clear()
    await producer.produce("t", batch_of(b"a"), partition=2)
    await asyncio.sleep(1)
    assert looked_at == [2]
    looked_at.clear()
    await producer.produce("t", batch_of(b"b"), partition=1)
    response = await asyncio.wait_for(answer, 1)
    assert looked_at == [0, 1, 2, 3], "it had found something, and given it back"
    assert [values_in(partition_of(response, "t", index)) for index in range(4)] == [[], [b"b"], [b"a"], []]
    assert [partition_of(response, "t", index).high_watermark for index in range(4)] == [1, 2, 2, 1]


@simulated()
async def test_a_poll_waits_for_as_many_bytes_as_it_asked_for(node: Node) -> None:
    client, producer = await filled(node), await node.client()
    size = len(batch_of(b"a"))
    answer = client.send(fetch_request({("t", 0): 0}, max_wait_ms=FOREVER, min_bytes=2 * size + 1), 12)
    for _ in range(2):
        await producer.produce("t", batch_of(b"a"))
        await asyncio.sleep(10)
        assert not answer.done()
    await producer.produce("t", batch_of(b"a"))
    assert len(values_in(partition_of(await asyncio.wait_for(answer, 1), "t"))) == 3


@simulated()
async def test_a_poll_ends_after_its_time_with_what_is_there(node: Node) -> None:
    client = await filled(node, b"a")
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    found = await client.fetch("t", max_wait_ms=700, min_bytes=1 << 20)
    assert 0.7 <= loop.time() - begun_s < 0.75
    assert values_in(found) == [b"a"]


@simulated()
async def test_a_poll_with_nothing_to_wait_for_does_not_wait(node: Node) -> None:
    client = await filled(node, b"a")
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    assert (await client.fetch("t", 0, max_wait_ms=FOREVER, min_bytes=0)).error_code == 0
    assert (await client.fetch("t", 9, max_wait_ms=FOREVER)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await client.fetch("nobody", 0, max_wait_ms=FOREVER)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = await client.ask(fetch_request({}, max_wait_ms=FOREVER), 12)
    assert not response.responses
    assert loop.time() - begun_s < 1


@simulated()
async def test_a_poll_is_woken_when_its_topic_is_deleted(node: Node) -> None:
    client, admin = await filled(node), await node.client()
    answer = client.send(fetch_request({("t", 0): 0}, max_wait_ms=FOREVER), 12)
    await asyncio.sleep(1)
    await admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    response = await asyncio.wait_for(answer, 1)
    assert partition_of(response, "t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated()
async def test_many_polls_on_one_partition_are_all_woken(node: Node) -> None:
    producer = await filled(node)
    clients = [await node.client() for _ in range(20)]
    answers = [client.send(fetch_request({("t", 0): 0}, max_wait_ms=FOREVER), 12) for client in clients]
    await asyncio.sleep(1)
    await producer.produce("t", batch_of(b"a"))
    for answer in answers:
        assert values_in(partition_of(await asyncio.wait_for(answer, 1), "t")) == [b"a"]


# -- epochs


@simulated()
async def test_readers_with_another_leader_epoch_are_fenced(node: Node) -> None:
    await filled(node, b"a")
    await node.restart()
    client = await node.client()
    assert (await client.fetch("t", epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await client.fetch("t", epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert values_in(await client.fetch("t", epoch=1)) == [b"a"]


@simulated()
async def test_a_reader_whose_log_parted_from_ours_is_told_where(node: Node) -> None:
    await filled(node, b"a", b"b")
    await node.restart()
    client = await node.client()
    await client.produce("t", batch_of(b"c"))
    assert values_in(await client.fetch("t", 2, last_fetched_epoch=0)) == [b"c"]
    parted = await client.fetch("t", 3, last_fetched_epoch=0, max_wait_ms=FOREVER)
    assert parted.error_code == 0
    assert parted.diverging_epoch is not None
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (0, 2)
    assert not parted.records
    assert (await client.fetch("t", 3, last_fetched_epoch=9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- pins


@simulated()
async def test_what_is_being_sent_is_pinned_until_it_is_sent(node: Node) -> None:
    client = await filled(node, b"x" * 500_000)
    client.link.pause_reading()
    client.send(fetch_request({("t", 0): 0}), 12)
    await asyncio.sleep(1)
    assert pins(node) == 1
    client.link.resume_reading()
    await asyncio.sleep(1)
    assert pins(node) == 0


@simulated()
async def test_a_reader_that_leaves_gives_its_pins_back(node: Node) -> None:
    other = await filled(node, b"x" * 500_000)
    client = await node.client()
    client.link.pause_reading()
    client.send(fetch_request({("t", 0): 0}), 12).add_done_callback(lambda future: future.exception())
    await asyncio.sleep(1)
    assert pins(node) == 1
    client.close()
    await asyncio.sleep(1)
    assert pins(node) == 0
    assert await other.values("t") == [b"x" * 500_000]


@pytest.mark.parametrize("ending", ["reset", "closed"])
@simulated()
async def test_a_parked_poll_pins_nothing_and_is_forgotten_when_its_reader_has_left(node: Node, ending: str) -> None:
    client, producer = await filled(node, b"a"), await node.client()
    partition = node.broker.topics.partition("t", 0)
    client.send(fetch_request({("t", 0): 0}, max_wait_ms=10_000, min_bytes=1 << 20), 12).add_done_callback(
        lambda future: future.exception()
    )
    await asyncio.sleep(1)
    assert pins(node) == 0
    assert len(partition.watchers) == 1
    if ending == "reset":
        node.world.wires.cut(cast(Any, client.link))
        await asyncio.sleep(1)
    else:
        # A connection is not read from while it waits for its answer, so its end is noticed with the answer.
        client.close()
        await asyncio.sleep(10)
    assert len(partition.watchers) == 0
    assert len(node.broker.server.connections) == 1
    await producer.produce("t", batch_of(b"b"))
    assert pins(node) == 0


@simulated()
async def test_answers_behind_one_that_waits_give_their_pins_back_when_the_reader_leaves(node: Node) -> None:
    from broker_harness import produce_request

    other = await filled(node, b"a")
    client = await node.client()
    await other.create_topic("u")
    node.hold_flushes()
    client.send(produce_request("u", batch_of(b"x")), 12).add_done_callback(lambda future: future.exception())
    client.send(fetch_request({("t", 0): 0}), 12).add_done_callback(lambda future: future.exception())
    await asyncio.sleep(1)
    assert pins(node) == 1
    client.close()
    await asyncio.sleep(1)
    assert pins(node) == 0


@simulated()
async def test_a_deleted_segment_is_still_sent_to_who_asked_before(node: Node) -> None:
    value = b"x" * 500_000
    client, admin = await filled(node, value), await node.client()
    client.link.pause_reading()
    answer = client.send(fetch_request({("t", 0): 0}), 12)
    await asyncio.sleep(1)
    await admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    await asyncio.sleep(1)
    client.link.resume_reading()
    assert values_in(partition_of(await answer, "t")) == [value]


@simulated()
async def test_a_range_that_is_not_in_memory_is_warmed_first(node: Node) -> None:
    client = await filled(node, b"a", b"b")
    await node.restart()
    node.disk.cold_chance = 1.0
    client = await node.client()
    assert await client.values("t") == [b"a", b"b"]
    assert pins(node) == 0


@simulated()
async def test_a_poll_warms_what_is_cold_when_its_bytes_are_there(node: Node) -> None:
    client = await filled(node, b"a")
    await node.restart()
    node.disk.cold_chance = 1.0
    client, producer = await node.client(), await node.client()
    request = fetch_request({("t", 0): 0}, max_wait_ms=FOREVER, min_bytes=len(batch_of(b"a")) + 1)
    answer = client.send(request, 12)
    await asyncio.sleep(10)
    assert (answer.done(), pins(node)) == (False, 0)
    await producer.produce("t", batch_of(b"b"))
    assert values_in(partition_of(await asyncio.wait_for(answer, 5), "t")) == [b"a", b"b"]
    assert pins(node) == 0


@pytest.mark.parametrize("ending", ["reader", "disk"])
@simulated()
async def test_a_poll_that_ends_while_it_warms_leaves_nothing_behind(node: Node, ending: str) -> None:
    client = await filled(node, b"a")
    await node.restart()
    node.disk.cold_chance = 1.0
    client = await node.client()
    partition = node.broker.topics.partition("t", 0)
    file = cast(Any, partition.log.segments[0].file)
    warming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asked: list[tuple[int, int]] = []
    type(file).warm, warm = lambda _, *place: asked.append(place) or warming, type(file).warm
    try:
        client.send(fetch_request({("t", 0): 0}), 12).add_done_callback(lambda future: future.exception())
        await asyncio.sleep(1)
        assert len(asked) == 1
        if ending == "reader":
            node.world.wires.cut(cast(Any, client.link))
        else:
            warming.set_exception(OSError("unreadable"))
        await asyncio.sleep(1)
    finally:
        type(file).warm = warm
    assert (len(partition.watchers), pins(node), warming.done()) == (0, 0, True)
    assert len(node.broker.server.connections) == 0
