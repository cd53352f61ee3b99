"""The consumer's offsets on real brokers, with both group protocols: commits, restarts, rebalances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from test_consumer_reads import PATIENCE_S, consumer_of, produce, read

from semel.client.consumer.consumer import Consumer
from semel.client.errors import CommitFailed
from semel.client.metadata import TopicPartition
from semel.client.values import OffsetAndMetadata

BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@BOTH
async def test_a_group_goes_on_where_it_was(
    address: str, topic: str, unique: Callable[[str], str], protocol: str
) -> None:
    group = {"group_id": unique("group"), "group_protocol": protocol}
    produce(address, topic, [b"%d" % number for number in range(10)])
    part = TopicPartition(topic, 0)
    async with consumer_of(address, topic, **group, enable_auto_commit=False) as consumer:
        await read(consumer, 4, max_records=2)
        await consumer.commit()
        assert await consumer.committed(part) == 4
        await read(consumer, 1, max_records=1)
        identity = consumer.group_metadata()
        assert identity.generation_id >= 1
        assert identity.member_id
    async with consumer_of(address, topic, **group) as consumer:
        assert [message.value for message in await read(consumer, 6)] == [b"%d" % number for number in range(4, 10)]
    async with consumer_of(address, topic, **group) as consumer:
        assert await consumer.getmany(timeout_ms=2000) == {}, "closing has committed"
        assert await consumer.committed(part) == 10


async def test_offsets_and_notes_are_those_that_other_clients_see(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    part = TopicPartition(topic, 1)
    produce(address, topic, [b"a", b"b", b"c"], partition=1)
    async with consumer_of(address, group_id=group) as consumer:
        consumer.assign([part])
        await consumer.commit({part: OffsetAndMetadata(2, "ours")})
        assert await consumer.committed_with_metadata(part) == OffsetAndMetadata(2, "ours")
    other = ConfluentConsumer({"bootstrap.servers": address, "group.id": group})
    (found,) = await asyncio.to_thread(other.committed, [ConfluentPartition(topic, 1)], PATIENCE_S)
    assert found.offset == 2
    theirs = ConfluentPartition(topic, 1, 1, "theirs")
    await asyncio.to_thread(lambda: other.commit(offsets=[theirs], asynchronous=False))
    other.close()
    async with consumer_of(address, group_id=group) as consumer:
        found_by_us = await consumer.committed_with_metadata(part)
        assert found_by_us is not None
        # Python's binding of librdkafka commits the zero that ends a text in C along with it.
        assert (found_by_us.offset, found_by_us.metadata.rstrip("\0")) == (1, "theirs")
        assert await consumer.committed(TopicPartition(topic, 0)) is None
        consumer.assign([part])
        assert (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value == b"b"


@BOTH
async def test_two_consumers_share_the_partitions_and_nothing_is_read_twice(
    address: str, topic: str, unique: Callable[[str], str], protocol: str
) -> None:
    settings = {"group_id": unique("group"), "group_protocol": protocol, "heartbeat_interval_ms": 200}
    seen: list[Any] = []

    async def follow(consumer: Consumer, until: asyncio.Event) -> None:
        while not until.is_set():
            for messages in (await consumer.getmany(timeout_ms=100)).values():
                seen.extend(message.value for message in messages)

    async def eventually(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def write(batch: int) -> None:
        for partition in range(3):
            values = [b"%d-%d-%d" % (batch, partition, index) for index in range(20)]
            produce(address, topic, values, partition=partition)

    over = asyncio.Event()
    async with consumer_of(address, topic, **settings) as first:
        one = asyncio.ensure_future(follow(first, over))
        await asyncio.to_thread(write, 1)
        await eventually(lambda: len(seen) >= 60)
        async with consumer_of(address, topic, **settings) as second:
            left = asyncio.Event()
            two = asyncio.ensure_future(follow(second, left))
            await eventually(lambda: bool(second.assignment()) and len(first.assignment()) < 3)
            await asyncio.to_thread(write, 2)
            await eventually(lambda: len(seen) >= 120)
            assert not first.assignment() & second.assignment()
            left.set()
            await two
        await eventually(lambda: len(first.assignment()) == 3)
        await asyncio.to_thread(write, 3)
        await eventually(lambda: len(seen) >= 180)
        over.set()
        await one
    assert len(seen) == len(set(seen)) == 180


async def test_a_commit_of_a_member_that_is_out_is_refused(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    """Even though the group is empty by then, and the broker would take anybody's commit."""
    produce(address, topic, [b"a", b"b"])
    settings: dict[str, Any] = {"group_id": unique("group"), "enable_auto_commit": False}
    settings |= {"max_poll_interval_ms": 2000, "session_timeout_ms": 6000}
    async with consumer_of(address, topic, **settings) as slow:
        assert len(await read(slow, 2)) == 2
        await asyncio.sleep(3.5)  # longer than the poll interval: it has left by itself
        with pytest.raises(CommitFailed):
            await slow.commit()
        assert len(await read(slow, 2)) == 2, "and it comes back with the next poll"
        await slow.commit()
        assert await slow.committed(TopicPartition(topic, 0)) == 2


async def test_commits_in_the_background_end_before_close_does(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    part = TopicPartition(topic, 0)
    told: list[Any] = []
    async with consumer_of(address, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([part])
        for offset in range(1, 31):
            consumer.commit_async({part: offset}, lambda offsets, error: told.append((offsets[part].offset, error)))
    assert told == [(offset, None) for offset in range(1, 31)]
    admin = AdminClient({"bootstrap.servers": address})
    asked = ConsumerGroupTopicPartitions(group, [ConfluentPartition(topic, 0)])
    (future,) = admin.list_consumer_group_offsets([asked]).values()
    found = await asyncio.to_thread(future.result, PATIENCE_S)
    assert found.topic_partitions[0].offset == 30
