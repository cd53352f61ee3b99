"""What `send` takes, refuses and makes of it: bytes, headers, times, partitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from scripted_broker import ScriptedCluster, scripted
from semel.client.errors import (
    BadRecord,
    RecordTooLarge,
)
from semel.client.producer.producer import Producer
from semel.records.batch import read_header
from semel.records.partitioning import partition_of_key
from semel.records.read import read_records
from semel.sim.clock import WALL_START_MS


def records(cluster: ScriptedCluster) -> list[Any]:
    return [record for batch in cluster.produced for record in read_records(batch.payload, read_header(batch.payload))]


# -- content


@scripted()
async def test_key_value_headers_and_time_arrive_as_they_were_given(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=10) as producer:
        await producer.send("t", b"plain")
        await producer.send("t", b"v", b"k", headers=[("a", b"1"), ("a", None)], timestamp_ms=77)
        await producer.send("t", None, b"tombstone")
        await producer.send("t", "text", "ключ")
        await producer.send("t", bytearray(b"array"), memoryview(b"view"))
        await producer.flush()
    assert [(record.key, record.value, list(record.headers)) for record in records(cluster)] == [
        (None, b"plain", []),
        (b"k", b"v", [("a", b"1"), ("a", None)]),
        (b"tombstone", None, []),
        ("ключ".encode(), b"text", []),
        (b"view", b"array", []),
    ]
    assert records(cluster)[1].timestamp_ms == 77
    assert records(cluster)[0].timestamp_ms >= WALL_START_MS


@scripted()
async def test_the_same_content_sent_twice_is_two_records(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        first = await producer.send_and_wait("t", b"same", b"key")
        second = await producer.send_and_wait("t", b"same", b"key")
    assert (first.offset, second.offset) == (0, 1)
    assert cluster.logs("t") == [b"same", b"same"]


@scripted()
async def test_serializers_make_the_bytes(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    settings: dict[str, Any] = {
        "key_serializer": lambda key: b"%d" % key,
        "value_serializer": lambda value: None if value is None else repr(value),
    }
    async with cluster.producer(**settings) as producer:
        await producer.send_and_wait("t", {"a": 1}, 7)
        await producer.send_and_wait("t", None, 8)
        with pytest.raises(BadRecord, match="key serializer failed on a str") as caught:
            await producer.send("t", 1, "no number")
        assert isinstance(caught.value.__cause__, TypeError)
    assert [(record.key, record.value) for record in records(cluster)] == [(b"7", b"{'a': 1}"), (b"8", None)]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"value": 5}, "a value is bytes, a text or None, not int"),
        ({"value": b"v", "key": 5}, "a key is bytes, a text or None, not int"),
        ({"value": b"v", "headers": [("name", "text")]}, "header"),
        ({"value": b"v", "headers": [("name",)]}, "header"),
        ({"value": b"v", "headers": [(b"name", b"v")]}, "header"),
        ({"value": b"v", "headers": 5}, "header"),
        ({"value": b"v", "headers": [("\ud800", b"v")]}, "header"),
        ({"value": b"v", "timestamp_ms": "now"}, "timestamp_ms"),
        ({"value": b"v", "timestamp_ms": -5}, "timestamp_ms"),
        ({"value": b"v", "timestamp_ms": 2**63}, "timestamp_ms"),
        ({"value": b"v", "timestamp_ms": 1.5}, "timestamp_ms"),
        ({"value": b"v", "partition": 3}, "partitions 0 to 2, not 3"),
        ({"value": b"v", "partition": -1}, "partitions 0 to 2, not -1"),
        ({"value": b"v", "partition": "1"}, "partitions 0 to 2, not '1'"),
        ({"value": "\ud800"}, "value"),
    ],
)
@scripted()
async def test_a_record_that_cannot_be_sent_is_refused_and_the_others_go_on(
    cluster: ScriptedCluster, arguments: dict[str, Any], complaint: str
) -> None:
    cluster.topic("t", [1, 1, 1])
    async with cluster.producer(linger_ms=20) as producer:
        deliveries = []
        for _ in range(3):  # into a batch to be begun, and into one that is there
            used_bytes = producer._accumulator.used_bytes
            with pytest.raises(BadRecord, match=complaint):
                await producer.send("t", **arguments)
            assert producer._accumulator.used_bytes == used_bytes
            deliveries.append(await producer.send("t", b"v"))
        await producer.flush()
        assert [delivery.exception() for delivery in deliveries] == [None] * 3
        assert producer._accumulator.used_bytes == 0


@scripted()
async def test_a_refused_record_in_the_middle_of_a_batch_leaves_the_batch_whole(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=20) as producer:
        await producer.send("t", b"1")
        with pytest.raises(BadRecord):
            await producer.send("t", b"bad", headers=[("name", "text")])  # type: ignore[list-item]
        await producer.send("t", b"2", headers={"name": b"bytes"})
        with pytest.raises(BadRecord):
            await producer.send("t", b"bad", headers=[("name", "text")])  # type: ignore[list-item]
        await producer.send("t", b"3")
        await producer.flush()
    assert [(record.value, list(record.headers)) for record in records(cluster)] == [
        (b"1", []),
        (b"2", [("name", b"bytes")]),
        (b"3", []),
    ]


@scripted()
async def test_every_record_is_measured_also_behind_a_small_one(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=20, batch_size=100_000, max_request_size=1000) as producer:
        await producer.send("t", b"small")
        for key in (None, b"k"):
            with pytest.raises(RecordTooLarge, match="1000"):
                await producer.send("t", b"x" * 2000, key)
        await producer.flush()
    assert cluster.logs("t") == [b"small"]


@scripted()
async def test_batches_stay_within_a_request_though_their_size_would_allow_more(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=20, batch_size=100_000, max_request_size=1000) as producer:
        for _ in range(20):
            await producer.send("t", b"x" * 100)
        await producer.flush()
    assert max(len(batch.payload) for batch in cluster.produced) <= 1000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@scripted()
async def test_batches_are_compressed(cluster: ScriptedCluster, codec: str) -> None:
    cluster.topic("t")
    async with cluster.producer(compression_type=codec, linger_ms=20) as producer:
        for _ in range(50):
            await producer.send("t", b"x" * 100)
        await producer.flush()
    assert cluster.logs("t") == [b"x" * 100] * 50
    assert sum(len(batch.payload) for batch in cluster.produced) < 1000


# -- partitions


@scripted()
async def test_a_key_decides_the_partition(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1] * 7)
    async with cluster.producer(linger_ms=20) as producer:
        for number in range(50):
            await producer.send("t", b"%d" % number, b"key %d" % number)
        await producer.flush()
    for number in range(50):
        assert b"%d" % number in cluster.logs("t", partition_of_key(b"key %d" % number, 7))


@scripted()
async def test_without_a_key_a_partition_is_kept_for_a_batch_and_then_another_one_taken(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t", [1] * 5)
    async with cluster.producer(linger_ms=20, batch_size=1000) as producer:
        for _ in range(500):
            await producer.send("t", b"x" * 89)
        await producer.flush()
    order = [partition for batch in cluster.produced for partition in [batch.partition] * len(batch.values)]
    counts = Counter(order)
    assert set(counts) == {0, 1, 2, 3, 4}
    assert min(counts.values()) > 40
    assert sum(before != after for before, after in pairwise(order)) < 100, "not another one for every record"


@scripted()
async def test_the_first_partition_is_any_of_them(cluster: ScriptedCluster) -> None:
    """Programs that send one record and end must not spare a partition."""
    cluster.topic("t", [1] * 3)
    firsts: Counter[int] = Counter()
    for number in range(60):
        host = cluster.host(f"program{number}")
        async with Producer(host=host, bootstrap_servers=cluster.address) as producer:
            firsts[(await producer.send_and_wait("t", b"x")).partition] += 1
    assert min(firsts[number] for number in range(3)) > 8


@scripted()
async def test_without_a_key_partitions_without_a_leader_are_left_out(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, -1, 1, -1])
    async with cluster.producer(linger_ms=0, batch_size=200) as producer:
        for _ in range(40):
            await producer.send_and_wait("t", b"x" * 100)
    assert {batch.partition for batch in cluster.produced} == {0, 2}


@scripted()
async def test_the_programs_own_partitioner_decides(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1] * 3)
    calls: list[tuple[Any, ...]] = []

    def choose(topic: str, key: Any, value: Any, partitions: list[int]) -> int:
        calls.append((topic, key, value, partitions))
        return int(value)

    async with cluster.producer(partitioner=choose, value_serializer=lambda value: b"%d" % value) as producer:
        await producer.send_and_wait("t", 2, "key")
        await producer.send_and_wait("t", 1, partition=0)
        with pytest.raises(BadRecord, match="partitions 0 to 2, not 9"):
            await producer.send("t", 9)
    assert calls == [("t", "key", 2, [0, 1, 2]), ("t", None, 9, [0, 1, 2])]
    assert [(batch.partition, batch.values) for batch in cluster.produced] == [(2, (b"2",)), (0, (b"1",))]


@scripted()
async def test_a_partitioner_that_fails_is_told_as_what_it_is(cluster: ScriptedCluster) -> None:
    cluster.topic("t")

    def choose(topic: str, key: Any, value: Any, partitions: list[int]) -> int:
        raise KeyError(value)

    async with cluster.producer(partitioner=choose) as producer:
        with pytest.raises(BadRecord, match=r"the partitioner failed on a record for t: KeyError\(b'x'\)") as caught:
            await producer.send("t", b"x")
        assert isinstance(caught.value.__cause__, KeyError)


@scripted()
async def test_partitions_that_were_added_are_used(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t", [1])
    async with cluster.producer(metadata_max_age_ms=10_000) as producer:
        await producer.send_and_wait("t", b"x", b"key")
        topic.grow(1, 1, 1)
        await asyncio.sleep(11)
        for number in range(40):
            await producer.send_and_wait("t", b"x", b"key %d" % number)
        assert await producer.partitions_for("t") == {0, 1, 2, 3}
    assert {batch.partition for batch in cluster.produced} == {0, 1, 2, 3}


@scripted()
async def test_a_partition_that_was_just_added_is_looked_for(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t", [1])
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"x")
        topic.grow(1)
        assert (await producer.send_and_wait("t", b"y", partition=1)).partition == 1
        with pytest.raises(BadRecord, match="partitions 0 to 1, not 2"):
            await producer.send("t", b"z", partition=2)


@scripted()
async def test_a_topic_made_anew_with_fewer_partitions_is_written_to_where_it_has_some(
    cluster: ScriptedCluster,
) -> None:
    topic = cluster.topic("t", [1] * 8)
    async with cluster.producer(metadata_max_age_ms=5_000, linger_ms=0, batch_size=100) as producer:
        for number in range(20):
            await producer.send_and_wait("t", b"x", b"%d" % number)
            await producer.send_and_wait("t", b"x")
        topic.topic_id = b"another topic id"
        topic.leaders, topic.epochs = [1, 1], [0, 0]
        cluster.logs.forget_producers()
        await asyncio.sleep(6)
        cluster.asked.clear()
        for number in range(20):
            await producer.send_and_wait("t", b"x", b"%d" % number)
            await producer.send_and_wait("t", b"x")
        with pytest.raises(BadRecord):
            await producer.send("t", b"x", partition=2)
    assert {batch.partition for batch in cluster.produced} == {0, 1}
