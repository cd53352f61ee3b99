"""The examples of docs/delivery-semantics.md, run as they stand, and killed in the middle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import semel
import semel.sync
from semel.client.admin.values import NewTopic

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
RECORDS = 300
BLOCKING = """
import sys
from semel.sync import Consumer, Producer, transform

address, source, sink = sys.argv[1:]
settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "session_timeout_ms": 6000}
with (
    Consumer(source, bootstrap_servers=address, group_id="blocking", **settings) as consumer,
    Producer(bootstrap_servers=address, transactional_id=f"{source}-to-{sink}") as producer,
):
    for batch in transform(consumer, producer):
        for message in batch:
            producer.send(sink, message.value.upper(), key=message.key)
"""


def fill(address: str, topic: str, first: int = 0) -> list[bytes]:
    values = [b"order %d" % number for number in range(first, first + RECORDS)]
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


@pytest.mark.parametrize("name", ["exactly_once", "exactly_once_by_hand", "exactly_once_blocking"])
def test_an_exactly_once_example_survives_kills(
    name: str, address: str, topic: str, unique: Callable[[str], str]
) -> None:
    """Twice it is killed as soon as anything of it can be seen, committed or not, and each time there is more to do."""
    sink = unique("invoices")
    partitions = [semel.TopicPartition(sink, number) for number in range(3)]
    with semel.sync.Admin(bootstrap_servers=address) as admin:
        admin.create_topics(NewTopic(sink, partitions=len(partitions)))
    values: list[bytes] = []
    with (
        semel.sync.Consumer(bootstrap_servers=address, isolation_level="read_committed") as reader,
        semel.sync.Consumer(bootstrap_servers=address, isolation_level="read_uncommitted") as watcher,
    ):
        reader.assign(partitions)
        reader.seek_to_beginning()
        watcher.assign(partitions)
        for _ in range(2):
            values += fill(address, topic, len(values))
            watcher.seek_to_end()
            watcher.poll(timeout_ms=100)
            with running_with_short_sessions(name, address, topic, sink):
                read(watcher, at_least=1)
        values += fill(address, topic, len(values))
        with running_with_short_sessions(name, address, topic, sink):
            found = read(reader, at_least=len(values))
        found += read(reader, at_least=1, timeout_s=0.5)
    assert sorted(found) == sorted(value.upper() for value in values)


def test_the_exactly_once_example_ends_after_the_batch_in_hand(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    """A SIGTERM: what was read so far is committed, and the group is left, so that nobody waits for its session."""
    sink = unique("invoices")
    values = fill(address, topic)
    for _ in range(2):
        process = subprocess.Popen([sys.executable, str(EXAMPLES / "exactly_once.py"), address, topic, sink])
        with semel.sync.Consumer(
            sink, bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as reader:
            found = read(reader, at_least=len(values), timeout_s=30)
            process.terminate()
            assert process.wait(10) == 0
            found += read(reader, at_least=1, timeout_s=0.5)
        assert sorted(found) == sorted(value.upper() for value in values)
        values += fill(address, topic, len(values))


@contextmanager
def running_with_short_sessions(name: str, address: str, source: str, sink: str) -> Iterator[None]:
    """An exactly-once example. When it is killed, the next one waits for the end of its session: 6 s here, the least
    that a broker allows, instead of 45."""
    if name == "exactly_once_blocking":
        program = BLOCKING
    else:
        program = f"import asyncio, sys, {name}; asyncio.run({name}.run(*sys.argv[1:], session_timeout_ms=6000))"
    process = subprocess.Popen([sys.executable, "-c", program, address, source, sink], cwd=EXAMPLES)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def read(consumer: semel.sync.Consumer, at_least: int, timeout_s: float = 60.0) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < at_least and time.monotonic() < deadline:
        found += [message.value for messages in consumer.poll(timeout_ms=50).values() for message in messages]
    return found
