"""Groups of aiokafka on a real broker: every assignor, joining, leaving, dying, resuming, admin calls."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from real_broker import Brokers, RealBroker

WAIT_S = 30.0
SETTINGS = {"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "1000"}
ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
EVERY_ASSIGNOR = pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda one: one.name)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(shared_brokers: Brokers) -> RealBroker:
    return shared_brokers.start(settings=SETTINGS)


def new_name(word: str) -> str:
    return f"aio-groups-{word}-{next(_numbers)}"


async def new_topic(broker: RealBroker, partitions: int = 4) -> str:
    name = new_name("topic")
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    await admin.create_topics([NewTopic(name, partitions, 1)])
    await admin.close()
    return name


async def produce(broker: RealBroker, topic: str, values: range) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        for value in values:
            await producer.send(topic, str(value).encode(), partition=value % 4)


class Member:
    def __init__(self, broker: RealBroker, group: str, topic: str, assignor: Any, **config: Any) -> None:
        self.read: list[int] = []
        self.consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=2000,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=(assignor,),
            **config,
        )

    async def start(self) -> Member:
        await self.consumer.start()
        return self

    async def poll(self) -> None:
        for records in (await self.consumer.getmany(timeout_ms=50)).values():
            self.read += [int(record.value) for record in records]


async def poll_until(members: list[Member], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, [(one.consumer.assignment(), len(one.read)) for one in members]
        await asyncio.gather(*(member.poll() for member in members))


async def share(members: list[Member], partitions: int = 4) -> None:
    def is_shared() -> bool:
        owned = [partition.partition for member in members for partition in member.consumer.assignment()]
        return sorted(owned) == list(range(partitions)) and all(member.consumer.assignment() for member in members)

    await poll_until(members, is_shared)


@EVERY_ASSIGNOR
async def test_members_share_rebalance_and_resume(broker: RealBroker, assignor: Any) -> None:
    topic, group = await new_topic(broker), new_name("group")
    await produce(broker, topic, range(100))
    first = await Member(broker, group, topic, assignor).start()
    await poll_until([first], lambda: len(first.read) == 100)
    await first.consumer.commit()
    second = await Member(broker, group, topic, assignor).start()
    await share([first, second])
    await produce(broker, topic, range(100, 200))
    await poll_until([first, second], lambda: len(first.read) + len(second.read) >= 200)
    assert sorted(first.read + second.read) == list(range(200))
    assert second.read
    await first.consumer.commit()
    await second.consumer.commit()
    await first.consumer.stop()
    await share([second])
    await second.consumer.stop()
    await produce(broker, topic, range(200, 240))
    third = await Member(broker, group, topic, assignor).start()
    await poll_until([third], lambda: len(third.read) >= 40)
    assert sorted(third.read) == list(range(200, 240))
    assert await third.consumer.committed(TopicPartition(topic, 0)) == 50
    await third.consumer.stop()


async def test_a_member_that_falls_silent_is_replaced(broker: RealBroker) -> None:
    topic, group = await new_topic(broker), new_name("group")
    first = await Member(broker, group, topic, RangePartitionAssignor).start()
    second = await Member(broker, group, topic, RangePartitionAssignor).start()
    await share([first, second])
    # Its coordination ends without a word, as when its process is killed.
    coordinator = first.consumer._coordinator
    coordinator._coordination_task.cancel()
    if coordinator._heartbeat_task is not None:
        coordinator._heartbeat_task.cancel()
    await poll_until([second], lambda: len(second.consumer.assignment()) == 4)
    await second.consumer.stop()


async def test_a_static_member_keeps_its_partitions_over_a_restart(broker: RealBroker) -> None:
    topic, group = await new_topic(broker), new_name("group")
    first = await Member(broker, group, topic, RangePartitionAssignor, group_instance_id="one").start()
    second = await Member(broker, group, topic, RangePartitionAssignor, group_instance_id="two").start()
    await share([first, second])
    had = second.consumer.assignment()
    await second.consumer.stop()
    second = await Member(broker, group, topic, RangePartitionAssignor, group_instance_id="two").start()
    await poll_until([first, second], lambda: bool(second.consumer.assignment()))
    assert second.consumer.assignment() == had
    await first.consumer.stop()
    await second.consumer.stop()


async def test_groups_are_listed_and_described(broker: RealBroker) -> None:
    topic, group = await new_topic(broker), new_name("group")
    member = await Member(broker, group, topic, RangePartitionAssignor).start()
    await share([member])
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        assert (group, "consumer") in await admin.list_consumer_groups()
        (response,) = await admin.describe_consumer_groups([group])
        described = response.groups[0]
        assert (described[0], described[1], described[2]) == (0, group, "Stable")
        await member.consumer.commit({TopicPartition(topic, 0): 0})
        assert (await admin.list_consumer_group_offsets(group))[TopicPartition(topic, 0)].offset == 0
    finally:
        await member.consumer.stop()
        await admin.close()
