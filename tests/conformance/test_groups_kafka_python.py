"""Groups of kafka-python on a real broker: every assignor, joining, leaving, static members, resuming, admin."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from real_broker import Brokers, RealBroker

WAIT_S = 30.0
SETTINGS = {"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "1000"}
ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor]
EVERY_ASSIGNOR = pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda one: one.name)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(shared_brokers: Brokers) -> RealBroker:
    return shared_brokers.start(settings=SETTINGS)


def new_name(word: str) -> str:
    return f"python-groups-{word}-{next(_numbers)}"


def new_topic(broker: RealBroker, partitions: int = 4) -> str:
    name = new_name("topic")
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}})
    admin.close()
    return name


def produce(broker: RealBroker, topic: str, values: range) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.address)
    for value in values:
        producer.send(topic, str(value).encode(), partition=value % 4)
    producer.flush(WAIT_S)
    producer.close()


class Member:
    def __init__(self, broker: RealBroker, group: str, topic: str, assignor: Any, **config: Any) -> None:
        self.read: list[int] = []
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(assignor,),
            **{"session_timeout_ms": 2000, "heartbeat_interval_ms": 300, **config},
        )

    def poll(self) -> None:
        for records in self.consumer.poll(timeout_ms=200).values():
            self.read += [int(record.value) for record in records]

    @property
    def partitions(self) -> set[int]:
        return {partition.partition for partition in self.consumer.assignment()}


def poll_until(members: list[Member], done: Callable[[], bool]) -> None:
    """All at once: a join is over when every member has come, and kafka-python joins only while it is polled."""
    deadline = time.monotonic() + WAIT_S
    with ThreadPoolExecutor(len(members)) as threads:
        while not done():
            assert time.monotonic() < deadline, [(one.partitions, len(one.read)) for one in members]
            list(threads.map(Member.poll, members))


def share(members: list[Member], partitions: int = 4) -> None:
    def is_shared() -> bool:
        owned = [partition for member in members for partition in member.partitions]
        return sorted(owned) == list(range(partitions)) and all(member.partitions for member in members)

    poll_until(members, is_shared)


@EVERY_ASSIGNOR
def test_members_share_rebalance_and_resume(broker: RealBroker, assignor: Any) -> None:
    topic, group = new_topic(broker), new_name("group")
    produce(broker, topic, range(100))
    first = Member(broker, group, topic, assignor)
    poll_until([first], lambda: len(first.read) == 100)
    first.consumer.commit()
    second = Member(broker, group, topic, assignor)
    share([first, second])
    produce(broker, topic, range(100, 200))
    poll_until([first, second], lambda: len(first.read) + len(second.read) >= 200)
    assert sorted(first.read + second.read) == list(range(200))
    assert second.read
    first.consumer.commit()
    second.consumer.commit()
    first.consumer.close()
    share([second])
    second.consumer.close()
    produce(broker, topic, range(200, 240))
    third = Member(broker, group, topic, assignor)
    poll_until([third], lambda: len(third.read) >= 40)
    assert sorted(third.read) == list(range(200, 240))
    assert third.consumer.committed(TopicPartition(topic, 0)) == 50
    third.consumer.close()


def test_a_static_member_keeps_its_partitions_over_a_restart(broker: RealBroker) -> None:
    topic, group = new_topic(broker), new_name("group")
    options = {"session_timeout_ms": 20_000}
    first = Member(broker, group, topic, RangePartitionAssignor, group_instance_id="one", **options)
    second = Member(broker, group, topic, RangePartitionAssignor, group_instance_id="two", **options)
    share([first, second])
    had = second.partitions
    second.consumer.close()
    second = Member(broker, group, topic, RangePartitionAssignor, group_instance_id="two", **options)
    poll_until([first, second], lambda: bool(second.partitions))
    assert second.partitions == had
    first.consumer.close()
    second.consumer.close()


def test_groups_are_listed_described_and_deleted(broker: RealBroker) -> None:
    topic, group = new_topic(broker), new_name("group")
    member = Member(broker, group, topic, RangePartitionAssignor)
    share([member])
    member.consumer.commit()
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        assert group in str(admin.list_groups())
        described = admin.describe_groups([group])
        assert "Stable" in str(described)
        assert topic in str(admin.list_group_offsets([group]))
        member.consumer.close()
        admin.delete_groups([group])
        assert group not in str(admin.list_groups())
    finally:
        admin.close()
