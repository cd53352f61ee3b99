"""Reading with our whole broker: what is handed out, in which order, and where the consumer stands after it."""

from __future__ import annotations

import asyncio
import re

import pytest
from consumer_world import Node, at, batch_of, consumer_of, on_broker, produce, values_of

from semel.client.consumer.consumer import Consumer
from semel.client.errors import BadSetting, Closed, IllegalState, NoOffset
from semel.client.values import OffsetAndMetadata
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState


async def make_topic(node: Node, name: str = "t", partitions: int = 1) -> None:
    client = await node.client()
    assert (await client.create_topic(name, partitions)).error_code == 0
    client.close()


@on_broker()
async def test_records_come_in_order_and_the_position_follows(node: Node) -> None:
    await make_topic(node)
    for number in range(4):
        await produce(node, "t-0", b"a%d" % number, b"b%d" % number)
    async with consumer_of(node, "t") as consumer:
        first = await consumer.getmany(timeout_ms=1000, max_records=3)
        assert values_of(first) == [b"a0", b"b0", b"a1"]
        assert await consumer.position(at("t-0")) == 3
        assert values_of(await consumer.poll(timeout_ms=1000)) == [b"b1", b"a2", b"b2", b"a3", b"b3"]
        assert [message.offset for message in first[at("t-0")]] == [0, 1, 2]
        assert await consumer.position(at("t-0")) == 8
        assert consumer.highwater(at("t-0")) == consumer.last_stable_offset(at("t-0")) == 8
        assert consumer.lag(at("t-0")) == 0


@on_broker()
async def test_topics_are_given_one_by_one_or_as_a_list(node: Node) -> None:
    for topics in (("t", "u"), (["t", "u"],)):
        consumer = Consumer(*topics, host=node.world.host("reader"))
        assert consumer.subscription() == {"t", "u"}


@on_broker()
async def test_a_message_has_all_its_fields(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", b"v", keys=[b"k"], headers=[[("h", b"1"), ("n", None)]], timestamp_ms=1234567890123)
    async with consumer_of(node, "t") as consumer:
        message = await consumer.getone()
        assert message == ("t", 0, 0, 1234567890123, 0, b"k", b"v", (("h", b"1"), ("n", None)))
        assert message.headers[0][0] == "h"
        assert message.timestamp_type == 0


@on_broker()
async def test_an_empty_poll_waits_as_long_as_it_is_told_and_no_longer(node: Node) -> None:
    await make_topic(node)
    loop = asyncio.get_running_loop()
    async with consumer_of(node, "t") as consumer:
        await consumer.getmany(timeout_ms=100)
        began_s = loop.time()
        assert await consumer.getmany(timeout_ms=2345) == {}
        assert loop.time() - began_s == pytest.approx(2.345)
        began_s = loop.time()
        assert await consumer.getmany() == {}
        assert loop.time() == began_s


@on_broker()
async def test_a_record_is_handed_out_as_soon_as_it_is_there(node: Node) -> None:
    """The fetch is parked at the broker: nobody asks again and again."""
    await make_topic(node)
    loop = asyncio.get_running_loop()
    async with consumer_of(node, "t", fetch_max_wait_ms=5000) as consumer:
        await consumer.getmany(timeout_ms=100)
        waiting = asyncio.ensure_future(consumer.getone())
        await asyncio.sleep(1.25)
        await produce(node, "t-0", b"now")
        began_s = loop.time()
        assert (await waiting).value == b"now"
        assert loop.time() - began_s < 0.01


@on_broker()
async def test_max_poll_records_bounds_a_poll_over_all_partitions(node: Node) -> None:
    await make_topic(node, partitions=3)
    for number in range(3):
        await produce(node, f"t-{number}", *[b"%d-%d" % (number, index) for index in range(4)])
    async with consumer_of(node, "t", max_poll_records=5) as consumer:
        got = []
        while len(got) < 12:
            found = await consumer.getmany(timeout_ms=1000)
            assert sum(map(len, found.values())) <= 5
            got += values_of(found)
        assert sorted(got) == sorted(b"%d-%d" % (number, index) for number in range(3) for index in range(4))


@on_broker()
async def test_a_poll_for_some_partitions_leaves_the_others_for_later(node: Node) -> None:
    await make_topic(node, partitions=2)
    await produce(node, "t-0", b"a")
    await produce(node, "t-1", b"b")
    async with consumer_of(node, "t") as consumer:
        await consumer.getmany(timeout_ms=100, max_records=1)
        consumer.seek(at("t-0"), 0)
        consumer.seek(at("t-1"), 0)
        assert values_of(await consumer.getmany(at("t-1"), timeout_ms=1000)) == [b"b"]
        assert await consumer.getmany(at("t-1"), timeout_ms=1000) == {}
        assert (await consumer.getone(at("t-0"))).value == b"a"


@on_broker()
async def test_latest_begins_at_the_end_and_earliest_at_the_beginning(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", b"old")
    async with consumer_of(node, "t", auto_offset_reset="latest") as consumer:
        assert await consumer.getmany(timeout_ms=200) == {}
        await produce(node, "t-0", b"new")
        assert (await consumer.getone()).value == b"new"
    async with consumer_of(node, "t", auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).value == b"old"


@on_broker()
async def test_by_duration_begins_so_long_ago_or_at_the_end(node: Node) -> None:
    await make_topic(node)
    wall_ms = node.host().clock.wall_ms()
    await produce(node, "t-0", b"days ago", timestamp_ms=wall_ms - 3 * 86_400_000)
    await produce(node, "t-0", b"an hour ago", timestamp_ms=wall_ms - 3_600_000)
    async with consumer_of(node, "t", auto_offset_reset="by_duration:P1D") as consumer:
        assert (await consumer.getone()).value == b"an hour ago"
    async with consumer_of(node, "t", auto_offset_reset="by_duration:PT1M") as consumer:
        assert await consumer.getmany(timeout_ms=200) == {}
        assert await consumer.position(at("t-0")) == 2


@on_broker()
async def test_without_a_policy_a_missing_offset_is_an_error_until_the_program_seeks(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", b"v")
    async with consumer_of(node, "t", group_id="g", auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffset, match=r"t-0.*'g'.*seek") as caught:
                await consumer.getmany(timeout_ms=5000)
            assert caught.value.partition == at("t-0")
        with pytest.raises(NoOffset):
            await consumer.position(at("t-0"))
        consumer.seek(at("t-0"), 0)
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"v"]


@on_broker()
async def test_seek_drops_what_was_fetched_and_reads_there(node: Node) -> None:
    await make_topic(node)
    for number in range(10):
        await produce(node, "t-0", b"%d" % number)
    async with consumer_of(node, "t") as consumer:
        assert values_of(await consumer.getmany(timeout_ms=1000, max_records=2)) == [b"0", b"1"]
        consumer.seek(at("t-0"), 7)
        assert await consumer.position(at("t-0")) == 7
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"7", b"8", b"9"]
        consumer.seek(at("t-0"), OffsetAndMetadata(4))
        assert (await consumer.getone()).value == b"4"
        await consumer.seek_to_end()
        assert await consumer.position(at("t-0")) == 10
        assert await consumer.getmany(timeout_ms=600) == {}
        await consumer.seek_to_beginning(at("t-0"))
        assert (await consumer.getone()).value == b"0"


@on_broker()
async def test_a_paused_partition_keeps_what_it_holds(node: Node) -> None:
    await make_topic(node, partitions=2)
    await produce(node, "t-0", b"a0", b"a1", b"a2")
    async with consumer_of(node) as consumer:
        consumer.assign([at("t-0"), at("t-1")])
        assert values_of(await consumer.getmany(timeout_ms=500, max_records=1)) == [b"a0"]
        consumer.pause(at("t-0"))
        assert consumer.paused() == {at("t-0")}
        await produce(node, "t-1", b"b0")
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"b0"]
        assert await consumer.getmany(timeout_ms=1000) == {}
        assert await consumer.position(at("t-0")) == 1
        consumer.resume(at("t-0"))
        assert consumer.paused() == frozenset()
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"a1", b"a2"]


# -- what is subscribed to


@on_broker()
async def test_without_a_group_all_partitions_of_the_topics_are_read_also_later_ones(node: Node) -> None:
    await make_topic(node, "a", 2)
    await produce(node, "a-1", b"a1")
    async with consumer_of(node, "a", "b", allow_auto_create_topics=False) as consumer:
        assert (await consumer.getone()).value == b"a1"
        assert consumer.assignment() == {at("a-0"), at("a-1")}
        await make_topic(node, "b", 1)
        await produce(node, "b-0", b"b0")
        assert (await consumer.getone()).value == b"b0"
        consumer.subscribe(["b"])
        await consumer.getmany(timeout_ms=100)
        assert consumer.assignment() == {at("b-0")}


@on_broker()
async def test_a_pattern_matches_whole_names_and_topics_that_appear_later(node: Node) -> None:
    for name in ("orders.eu", "orders.us", "all.orders.eu", "orders.eu.old"):
        await make_topic(node, name)
        await produce(node, f"{name}-0", name.encode())
    async with consumer_of(node, metadata_max_age_ms=2000) as consumer:
        consumer.subscribe(pattern=r"orders\.(eu|us|jp)")
        got = [(await consumer.getone()).value for _ in range(2)]
        assert sorted(got) == [b"orders.eu", b"orders.us"]
        await make_topic(node, "orders.jp")
        await produce(node, "orders.jp-0", b"jp")
        assert (await consumer.getone()).value == b"jp"
        assert consumer.subscription() == {"orders.eu", "orders.us", "orders.jp"}
        assert await consumer.getmany(timeout_ms=500) == {}


@on_broker()
async def test_patterns_pass_over_internal_topics_unless_told_otherwise(node: Node) -> None:
    await make_topic(node)
    async with consumer_of(node, "t", group_id="g") as consumer:
        await consumer.getmany(timeout_ms=100)
        assert await consumer.topics() == {"t"}
    async with consumer_of(node) as consumer:
        consumer.subscribe(pattern=re.compile(".*"))
        await consumer.getmany(timeout_ms=500)
        assert consumer.subscription() == {"t"}
    async with consumer_of(node, exclude_internal_topics=False) as consumer:
        consumer.subscribe(pattern=re.compile(".*"))
        await consumer.getmany(timeout_ms=500)
        assert consumer.subscription() == {"t", "__consumer_offsets"}
        assert await consumer.topics() == {"t", "__consumer_offsets"}


@on_broker()
async def test_partitions_can_be_assigned_by_hand(node: Node) -> None:
    await make_topic(node, partitions=3)
    for number in range(3):
        await produce(node, f"t-{number}", b"%d" % number)
    async with consumer_of(node) as consumer:
        consumer.assign([at("t-0"), at("t-2")])
        got = [(await consumer.getone()).value for _ in range(2)]
        assert sorted(got) == [b"0", b"2"]
        consumer.assign([at("t-2"), at("t-1")])
        assert await consumer.position(at("t-2")) == 1
        assert (await consumer.getone()).value == b"1"
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        with pytest.raises(IllegalState, match="subscribe or assign"):
            await consumer.getmany()
        consumer.subscribe("t")
        assert (await consumer.getone()).partition in (0, 1, 2)


# -- misuse


@on_broker()
async def test_misuse_is_told_in_a_sentence(node: Node) -> None:
    await make_topic(node)
    with pytest.raises(IllegalState, match="not started"):
        await consumer_of(node, "t").getmany()
    async with consumer_of(node) as consumer:
        with pytest.raises(IllegalState, match="nothing to read"):
            await consumer.getmany()
        with pytest.raises(IllegalState, match="topics or a pattern, not both"):
            consumer.subscribe(["t"], pattern="t")
        with pytest.raises(IllegalState, match="at least one topic"):
            consumer.subscribe()
        with pytest.raises(BadSetting, match=r"pattern '\('"):
            consumer.subscribe(pattern="(")
        consumer.subscribe(["t"])
        with pytest.raises(IllegalState, match="topics are subscribed to: call unsubscribe before assign"):
            consumer.assign([at("t-0")])
        with pytest.raises(IllegalState, match="t-5 is not assigned"):
            consumer.seek(at("t-5"), 0)
        with pytest.raises(IllegalState, match="t-5 is not assigned"):
            await consumer.position(at("t-5"))
        with pytest.raises(IllegalState, match="group_id"):
            await consumer.commit()
        with pytest.raises(IllegalState, match="group_id"):
            await consumer.committed(at("t-0"))
        with pytest.raises(IllegalState, match="group_id"):
            consumer.group_metadata()
        with pytest.raises(IllegalState, match="max_records=0"):
            await consumer.getmany(max_records=0)
        await consumer.getmany(timeout_ms=100)
        with pytest.raises(IllegalState, match="below 0"):
            consumer.seek(at("t-0"), -1)
        first = asyncio.ensure_future(consumer.getmany(timeout_ms=1000))
        await asyncio.sleep(0.1)
        with pytest.raises(IllegalState, match="one at a time"):
            await consumer.getmany()
        await first
    async with consumer_of(node) as consumer:
        consumer.assign([at("t-0")])
        with pytest.raises(IllegalState, match="assigned by hand"):
            consumer.subscribe(["t"])


@on_broker()
async def test_close_can_be_called_twice_and_start_not_after_it(node: Node) -> None:
    consumer = consumer_of(node, "t")
    await consumer.start()
    await consumer.start()
    await consumer.close()
    await consumer.stop()
    with pytest.raises(Closed):
        await consumer.start()
    with pytest.raises(Closed):
        consumer.subscribe(["t"])


@on_broker()
async def test_offsets_by_time_and_the_ends_of_logs(node: Node) -> None:
    await make_topic(node, partitions=2)
    for number in range(4):
        await produce(node, "t-0", b"%d" % number, timestamp_ms=1000 * number)
    async with consumer_of(node) as consumer:
        assert await consumer.beginning_offsets([at("t-0"), at("t-1")]) == {at("t-0"): 0, at("t-1"): 0}
        assert await consumer.end_offsets([at("t-0"), at("t-1")]) == {at("t-0"): 4, at("t-1"): 0}
        found = await consumer.offsets_for_times({at("t-0"): 1500, at("t-1"): 1500})
        assert found[at("t-0")] is not None
        assert found[at("t-0")][:2] == (2, 2000)
        assert found[at("t-1")] is None
        assert (await consumer.offsets_for_times({at("t-0"): 3001}))[at("t-0")] is None
        with pytest.raises(IllegalState, match="-5 is no timestamp"):
            await consumer.offsets_for_times({at("t-0"): -5})
        assert await consumer.partitions_for_topic("t") == {0, 1}
        assert await consumer.partitions_for_topic("missing") is None
        assert "missing" not in await consumer.topics()


@on_broker()
async def test_a_topic_made_anew_is_read_from_its_beginning(node: Node) -> None:
    """Its id has changed: the session and the position of the old one are of no use."""
    await make_topic(node)
    await produce(node, "t-0", b"1", b"2", b"3")
    async with consumer_of(node, "t", allow_auto_create_topics=False) as consumer:
        assert len(values_of(await consumer.getmany(timeout_ms=1000))) == 3
        client = await node.client()
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
        await client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]))
        await client.produce("t", batch_of(b"new"))
        client.close()
        assert (await asyncio.wait_for(consumer.getone(), 30)).value == b"new"
