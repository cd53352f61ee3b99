"""The examples of docs/delivery-semantics.md, run as they stand, and killed in the middle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import semel
import semel.sync

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
RECORDS = 300


def fill(address: str, topic: str) -> list[bytes]:
    values = [b"order %d" % number for number in range(RECORDS)]
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        for value in values:
            producer.send(topic, value, key=value)
    return values


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", ["at_most_once.py", "at_least_once.py"])
def test_a_consuming_example_prints_every_record(name: str, address: str, topic: str) -> None:
    # Both have a group of their own, which other tests do not use: the topic is new.
    values = fill(address, topic)
    process = start(name, address, topic)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(RECORDS)]
    finally:
        process.kill()
        process.wait()
    assert sorted(line.partition(": ")[2].strip() for line in lines) == sorted(repr(value) for value in values)


def test_the_exactly_once_example_survives_kills(address: str, topic: str, unique: Callable[[str], str]) -> None:
    sink = unique("invoices")
    values = fill(address, topic)
    found: list[bytes] = []
    with semel.sync.Admin(bootstrap_servers=address) as admin:
        from semel.client.admin.values import NewTopic

        admin.create_topics(NewTopic(sink, partitions=3))
    with semel.sync.Consumer(bootstrap_servers=address, isolation_level="read_committed") as consumer:
        consumer.assign([semel.TopicPartition(sink, number) for number in range(3)])
        consumer.seek_to_beginning()
        for life_s in (0.6, 1.0, 60.0):
            process = start("exactly_once.py", address, topic, sink)
            deadline = time.monotonic() + life_s
            while time.monotonic() < deadline and len(found) < RECORDS:
                for messages in consumer.poll(timeout_ms=100).values():
                    found += [message.value for message in messages]
            process.kill()
            process.wait()
        found += [message.value for messages in consumer.poll(timeout_ms=500).values() for message in messages]
    assert sorted(found) == sorted(value.upper() for value in values)
