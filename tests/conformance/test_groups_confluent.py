"""Groups of confluent-kafka (librdkafka) on a real broker: assignors, static members, KIP-848, kills, admin calls."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from real_broker import Brokers, RealBroker

WAIT_S = 30.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "2000",
}
CLASSIC = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 300}
KINDS: dict[str, dict[str, Any]] = {
    "range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "roundrobin": {**CLASSIC, "partition.assignment.strategy": "roundrobin"},
    "cooperative-sticky": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
    "kip-848 range": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(shared_brokers: Brokers) -> RealBroker:
    return shared_brokers.start(settings=SETTINGS)


def new_name(word: str) -> str:
    return f"groups-{word}-{next(_numbers)}"


def new_topic(broker: RealBroker, partitions: int = 4, name: str = "") -> str:
    name = name or new_name("topic")
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)
    return name


def produce(broker: RealBroker, topic: str, values: range, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=value % partitions)
    assert producer.flush(WAIT_S) == 0


class Member:
    """A consumer and what it has read; commits after every read, before the next."""

    def __init__(self, broker: RealBroker, group: str, topics: list[str], kind: str, **config: Any) -> None:
        self.revoked = 0
        self.read: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 300,
                **KINDS[kind],
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        self.consumer.subscribe(topics, on_revoke=self._on_revoke)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked += 1

    def poll(self) -> None:
        for message in self.consumer.consume(50, 0.05):
            if message.error() is None:
                self.read.append(int(message.value()))
        if self.read:
            try:
                self.consumer.commit(asynchronous=False)
            except KafkaException:
                pass  # a rebalance came in between, or there was nothing new

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(one.topic, one.partition) for one in self.consumer.assignment()}


def poll_until(members: list[Member], done: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, [(one.partitions, len(one.read)) for one in members]
        for member in members:
            member.poll()


def share(members: list[Member], topic: str, partitions: int = 4) -> None:
    """Until every partition has one reader, and every reader as many as fair."""

    def is_shared() -> bool:
        owned = [partition for member in members for partition in member.partitions]
        fair = partitions // len(members)
        return sorted(owned) == [(topic, index) for index in range(partitions)] and all(
            fair <= len(member.partitions) <= fair + 1 for member in members
        )

    poll_until(members, is_shared)


@contextmanager
def group_of(*members: Member) -> Iterator[list[Member]]:
    yield list(members)
    for member in members:
        member.consumer.close()


@EVERY_KIND
def test_members_share_the_partitions_and_read_everything_once(broker: RealBroker, kind: str) -> None:
    topic, group = new_topic(broker), new_name("group")
    with group_of(*(Member(broker, group, [topic], kind) for _ in range(2))) as members:
        share(members, topic)
        produce(broker, topic, range(100))
        poll_until(members, lambda: sum(len(member.read) for member in members) >= 100)
        assert sorted(members[0].read + members[1].read) == list(range(100))
        assert all(member.read for member in members)


@EVERY_KIND
def test_a_member_that_joins_gets_its_share_and_one_that_leaves_gives_it_back(broker: RealBroker, kind: str) -> None:
    topic, group = new_topic(broker), new_name("group")
    produce(broker, topic, range(100))
    first = Member(broker, group, [topic], kind)
    poll_until([first], lambda: len(first.read) == 100)
    second = Member(broker, group, [topic], kind)
    share([first, second], topic)
    second.consumer.close()
    share([first], topic)
    produce(broker, topic, range(100, 200))
    poll_until([first], lambda: len(first.read) >= 200)
    # The second had committed nothing of its own; what the first had committed is not read again.
    assert sorted(first.read) == list(range(200))
    first.consumer.close()


@EVERY_KIND
def test_the_group_goes_on_where_it_stopped(broker: RealBroker, kind: str) -> None:
    topic, group = new_topic(broker), new_name("group")
    produce(broker, topic, range(50))
    with group_of(Member(broker, group, [topic], kind)) as (member,):
        poll_until([member], lambda: len(member.read) == 50)
        member.poll()
    produce(broker, topic, range(50, 80))
    with group_of(Member(broker, group, [topic], kind)) as (member,):
        poll_until([member], lambda: len(member.read) >= 30)
        assert sorted(member.read) == list(range(50, 80))
        committed = member.consumer.committed([TopicPartition(topic, index) for index in range(4)], timeout=WAIT_S)
        assert [one.offset for one in committed] == [20, 20, 20, 20]


@EVERY_KIND
def test_a_member_that_is_killed_is_replaced_after_its_session(broker: RealBroker, kind: str) -> None:
    topic, group = new_topic(broker), new_name("group")
    produce(broker, topic, range(40))
    config = {"bootstrap.servers": broker.address, "group.id": group, "auto.offset.reset": "earliest", **KINDS[kind]}
    script = (
        "from confluent_kafka import Consumer\n"
        f"consumer = Consumer({config | {'enable.auto.commit': False}!r})\n"
        f"consumer.subscribe([{topic!r}])\n"
        "while True:\n"
        "    if consumer.poll(0.1) is not None: print('read', flush=True)\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"read\n"
        member = Member(broker, group, [topic], kind)
        poll_until([member], lambda: len(member.partitions) == 2)
        victim.kill()
        poll_until([member], lambda: len(member.partitions) == 4)
        poll_until([member], lambda: len(set(member.read)) == 40)
        member.consumer.close()
    finally:
        victim.kill()
        victim.wait()


@EVERY_KIND
def test_new_partitions_are_shared_out(broker: RealBroker, kind: str) -> None:
    topic, group = new_topic(broker, 2), new_name("group")
    with group_of(*(Member(broker, group, [topic], kind) for _ in range(2))) as members:
        share(members, topic, 2)
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(WAIT_S)
        share(members, topic, 4)


@EVERY_KIND
def test_topics_that_match_a_pattern_are_found(broker: RealBroker, kind: str) -> None:
    prefix, group = new_name("pattern"), new_name("group")
    first = new_topic(broker, 1, f"{prefix}-a")
    with group_of(Member(broker, group, [f"^{prefix}-.*"], kind)) as (member,):
        poll_until([member], lambda: member.partitions == {(first, 0)})
        second = new_topic(broker, 1, f"{prefix}-b")
        poll_until([member], lambda: member.partitions == {(first, 0), (second, 0)})


@EVERY_KIND
def test_a_static_member_that_is_restarted_disturbs_nobody(broker: RealBroker, kind: str) -> None:
    topic, group = new_topic(broker), new_name("group")
    session = {} if "group.protocol" in KINDS[kind] else {"session_timeout_ms": 20_000}
    one = Member(broker, group, [topic], kind, group_instance_id="one", **session)
    two = Member(broker, group, [topic], kind, group_instance_id="two", **session)
    share([one, two], topic)
    had, revoked = two.partitions, one.revoked
    two.consumer.close()
    two = Member(broker, group, [topic], kind, group_instance_id="two", **session)
    poll_until([one, two], lambda: bool(two.partitions))
    assert two.partitions == had
    assert one.revoked == revoked
    for member in (one, two):
        member.consumer.close()


def test_a_static_member_whose_place_is_taken_is_fenced(broker: RealBroker) -> None:
    topic, group = new_topic(broker), new_name("group")
    first = Member(broker, group, [topic], "range", group_instance_id="one")
    share([first], topic)
    second = Member(broker, group, [topic], "range", group_instance_id="one")
    share([second], topic)
    deadline = time.monotonic() + WAIT_S
    error = None
    while error is None and time.monotonic() < deadline:
        try:
            message = first.consumer.poll(0.1)
            error = message.error() if message is not None else None
        except KafkaException as fatal:
            error = fatal.args[0]
    assert error is not None
    assert "fenced" in error.str()
    for member in (first, second):
        member.consumer.close()


@EVERY_KIND
def test_members_and_offsets_survive_a_broker_that_is_killed(brokers: Brokers, kind: str) -> None:
    broker = brokers.start(settings=SETTINGS)
    topic, group = new_topic(broker), new_name("group")
    produce(broker, topic, range(40))
    with group_of(*(Member(broker, group, [topic], kind) for _ in range(2))) as members:
        poll_until(members, lambda: sum(len(member.read) for member in members) == 40)
        share(members, topic)
        for member in members:
            member.poll()
        broker.kill()
        broker.start()
        produce(broker, topic, range(40, 80))
        poll_until(members, lambda: len({one for member in members for one in member.read}) == 80)
        assert sum(len(member.read) for member in members) == 80
        share(members, topic)


# -- what administrators do


def test_groups_are_listed_described_and_deleted(broker: RealBroker) -> None:
    topic = new_topic(broker)
    classic, modern = new_name("classic"), new_name("modern")
    admin = AdminClient({"bootstrap.servers": broker.address})
    members = [Member(broker, classic, [topic], "range"), Member(broker, modern, [topic], "kip-848")]
    share(members[:1], topic)
    share(members[1:], topic)
    listed = {one.group_id: one for one in admin.list_consumer_groups(request_timeout=WAIT_S).result().valid}
    assert {classic, modern} <= set(listed)
    assert listed[classic].state == ConsumerGroupState.STABLE
    assert listed[classic].type.name == "CLASSIC"
    assert listed[modern].type.name == "CONSUMER"
    described = admin.describe_consumer_groups([classic, modern], request_timeout=WAIT_S)
    for group, assignor in ((classic, "range"), (modern, "uniform")):
        result = described[group].result(WAIT_S)
        assert (result.state, result.partition_assignor) == (ConsumerGroupState.STABLE, assignor)
        (member,) = result.members
        assert len(member.assignment.topic_partitions) == 4
    for group, future in admin.delete_consumer_groups([classic, modern], request_timeout=WAIT_S).items():
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            future.result(WAIT_S)
        assert group
    for member in members:
        member.consumer.close()
    for future in admin.delete_consumer_groups([classic, modern], request_timeout=WAIT_S).values():
        future.result(WAIT_S)
    left = {one.group_id for one in admin.list_consumer_groups(request_timeout=WAIT_S).result().valid}
    assert not {classic, modern} & left


def test_offsets_are_listed_altered_and_found_again(broker: RealBroker) -> None:
    topic, group = new_topic(broker), new_name("group")
    produce(broker, topic, range(40))
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 7)])
    admin.alter_consumer_group_offsets([wanted], request_timeout=WAIT_S)[group].result(WAIT_S)
    futures = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=WAIT_S)
    found = futures[group].result(WAIT_S).topic_partitions
    assert [(one.topic, one.partition, one.offset) for one in found] == [(topic, 1, 7)]
    member = Member(broker, group, [topic], "range")
    poll_until([member], lambda: len(member.read) >= 33)
    assert sorted(value for value in member.read if value % 4 == 1) == [29, 33, 37]
    member.consumer.close()
