"""The admin on running brokers: groups of both protocols, with librdkafka's consumers as members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest
from admin_steps import DEADLINE_S, write
from confluent_kafka import Consumer as ForeignConsumer

from semel.client.admin.admin import Admin
from semel.client.errors import GroupNotEmpty, UnknownGroup
from semel.client.metadata import TopicPartition
from semel.client.values import OffsetAndMetadata


@pytest.fixture
async def admin(address: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=address) as made:
        yield made


@contextmanager
def member(address: str, group_id: str, topic: str, protocol: str, **settings: str) -> Iterator[ForeignConsumer]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    if protocol == "classic":
        named |= {"session.timeout.ms": "10000"}
    consumer = ForeignConsumer(
        {
            "bootstrap.servers": address,
            "group.id": group_id,
            "group.protocol": protocol,
            "client.id": "foreign",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **named,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


async def until_assigned(consumer: ForeignConsumer, partitions: int = 3) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while len(consumer.assignment()) < partitions:
            await asyncio.to_thread(consumer.poll, 0.2)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_is_described_with_what_its_member_reads(
    admin: Admin, address: str, topic: str, unique: Callable[[str], str], protocol: str
) -> None:
    group_id = unique("group")
    everything = {TopicPartition(topic, index) for index in range(3)}
    with member(address, group_id, topic, protocol, group_instance_id="fixed") as consumer:
        await until_assigned(consumer)
        async with asyncio.timeout(DEADLINE_S):
            while (group := (await admin.describe_groups(group_id))[group_id]).state != "Stable":
                await asyncio.to_thread(consumer.poll, 0.1)
        assert group.kind == protocol
        assert group.coordinator is not None
        assert group.assignor in ("range", "uniform")
        (one,) = group.members
        assert (one.client_id, one.instance_id) == ("foreign", "fixed")
        assert one.subscription == {topic}
        assert one.assignment == everything
        assert (one.epoch is None) == (protocol == "classic")
        assert group_id in await admin.list_groups(states=["Stable"], kinds=[protocol])
        assert group_id not in await admin.list_groups(states=["Empty"])
        with pytest.raises(GroupNotEmpty):
            await admin.delete_groups(group_id)
        with pytest.raises(GroupNotEmpty):
            await admin.alter_group_offsets(group_id, {TopicPartition(topic, 0): 0})
        lags = (await admin.group_lag(group_id))[group_id]
        assert {place: lag.member_id for place, lag in lags.items()} == dict.fromkeys(everything, one.member_id)


async def test_members_of_a_classic_group_are_removed(
    admin: Admin, address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group_id = unique("group")
    with member(address, group_id, topic, "classic", group_instance_id="fixed") as consumer:
        await until_assigned(consumer)
        await admin.remove_members(group_id, instance_ids=["fixed"])
        assert (await admin.describe_groups(group_id))[group_id].is_empty


async def test_offsets_of_a_group_without_members(
    admin: Admin, address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group_id = unique("group")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(address, topic, *[b"x"] * 10)
    assert await admin.list_group_offsets(group_id) == {group_id: {}}
    await admin.alter_group_offsets(group_id, {first: 4, second: OffsetAndMetadata(0, "note")})
    assert await admin.list_group_offsets(group_id, require_stable=True) == {
        group_id: {first: OffsetAndMetadata(4), second: OffsetAndMetadata(0, "note")}
    }
    assert list((await admin.list_group_offsets(group_id, [second]))[group_id]) == [second]
    lags = (await admin.group_lag(group_id, isolation_level="read_committed"))[group_id]
    assert {place: lag.lag for place, lag in lags.items()} == {first: 6, second: 0}
    await admin.delete_group_offsets(group_id, [first])
    assert list((await admin.list_group_offsets(group_id))[group_id]) == [second]
    group = (await admin.describe_groups(group_id))[group_id]
    assert (group.state, group.is_empty) == ("Empty", True)
    await admin.delete_groups(group_id)
    with pytest.raises(UnknownGroup):
        await admin.describe_groups(group_id)
    with pytest.raises(UnknownGroup):
        await admin.delete_groups(group_id)
