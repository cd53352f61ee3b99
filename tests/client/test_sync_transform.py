"""`semel.sync.transform`: the loop of a program without asyncio."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sync_reading import read_all

import semel.sync
from semel import errors
from semel.client.admin.values import NewTopic


@pytest.fixture
def sink(address: str, unique: Callable[[str], str]) -> str:
    name = unique("sink")
    with semel.sync.Admin(bootstrap_servers=address) as admin:
        admin.create_topics(NewTopic(name, partitions=1))
    return name


def fill(address: str, topic: str, count: int) -> None:
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def consumer(address: str, topic: str) -> semel.sync.Consumer:
    return semel.sync.Consumer(
        topic,
        bootstrap_servers=address,
        group_id=f"{topic}-group",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )


def test_a_loop_that_was_left_is_begun_again_and_every_record_is_written_once(
    address: str, topic: str, sink: str
) -> None:
    fill(address, topic, 50)
    with (
        consumer(address, topic) as reader,
        semel.sync.Producer(bootstrap_servers=address, transactional_id=f"{topic}-id") as producer,
    ):
        batches = semel.sync.transform(reader, producer, max_records=20)
        seen: set[bytes] = set()
        for leaves in (True, True, False):
            for batch in batches:
                for message in batch:
                    producer.send(sink, message.value)
                if leaves:
                    break
                seen |= {message.value for message in batch}
                if len(seen) == 50:
                    batches.stop()
        assert seen == {b"%d" % number for number in range(50)}
        assert reader.committed(semel.TopicPartition(topic, 0)) == 50
    assert [message.value for message in read_all(address, sink, 50, isolation_level="read_committed")] == [
        b"%d" % number for number in range(50)
    ]


def test_the_loop_ends_when_another_thread_stops_it(address: str, topic: str) -> None:
    with consumer(address, topic) as reader:
        batches = semel.sync.transform(reader, None, "at_least_once")
        timer = threading.Timer(0.5, batches.stop)
        timer.start()
        assert list(batches) == []


def test_contradictions_are_refused(address: str, topic: str) -> None:
    with consumer(address, topic) as reader, pytest.raises(errors.BadSetting, match="transactional_id"):
        semel.sync.transform(reader, None)
