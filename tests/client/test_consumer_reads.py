"""The consumer on real brokers, beside confluent-kafka's producer: what is read, by every way of reading."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from raw_client import RawClient
from semel.client.consumer.consumer import Consumer
from semel.client.errors import NoOffset, OffsetOutOfRange
from semel.client.metadata import TopicPartition
from semel.client.values import Message
from semel.wire.spec.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

PATIENCE_S = 60


def produce(address: str, topic: str, values: list[Any], *, partition: int = 0, **settings: Any) -> None:
    """Values, or (key, value, headers)."""
    producer = ConfluentProducer({"bootstrap.servers": address, "linger.ms": 5, **settings})
    for entry in values:
        key, value, headers = entry if isinstance(entry, tuple) else (None, entry, None)
        producer.produce(topic, value, key=key, headers=headers, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def consumer_of(address: str, *topics: str, **settings: Any) -> Consumer:
    return Consumer(*topics, **{"bootstrap_servers": address, "auto_offset_reset": "earliest", **settings})


async def read(consumer: Consumer, count: int, **options: Any) -> list[Message]:
    got: list[Message] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(got) < count:
            for messages in (await consumer.getmany(timeout_ms=1000, **options)).values():
                got += messages
    return got


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read(address: str, topic: str, codec: str) -> None:
    sent = [(b"k%d" % number, b"value %d " % number * 20, [("h", b"%d" % number)]) for number in range(200)]
    sent += [(None, None, None), (b"", b"", [])]
    produce(address, topic, sent, **{"compression.type": codec})
    async with consumer_of(address, topic) as consumer:
        got = await read(consumer, len(sent))
        assert [(message.key, message.value) for message in got] == [(key, value) for key, value, _ in sent]
        assert [message.headers for message in got] == [tuple(headers or ()) for _, _, headers in sent]
        assert [message.offset for message in got] == list(range(len(sent)))
        assert all(message.timestamp_ms > 1_600_000_000_000 for message in got)


async def test_all_ways_of_reading_give_the_same(address: str, topic: str) -> None:
    for partition in range(3):
        produce(address, topic, [b"%d-%d" % (partition, number) for number in range(500)], partition=partition)

    def sorted_values(values: list[Any]) -> dict[int, list[Any]]:
        return {number: [one for one in values if one.startswith(b"%d-" % number)] for number in range(3)}

    expected = {number: [b"%d-%d" % (number, index) for index in range(500)] for number in range(3)}
    async with consumer_of(address, topic) as consumer:
        assert sorted_values([message.value for message in await read(consumer, 1500)]) == expected
        await consumer.seek_to_beginning()
        assert sorted_values([message.value for message in await read(consumer, 1500, max_records=7)]) == expected
        await consumer.seek_to_beginning()
        got = []
        async for message in consumer:
            got.append(message.value)
            if len(got) == 1500:
                break
        assert sorted_values(got) == expected
        await consumer.seek_to_beginning()
        assert sorted_values([(await consumer.getone()).value for _ in range(1500)]) == expected
        await consumer.seek_to_beginning()
        got = []
        while len(got) < 1500:
            got += (await consumer.poll_columns(timeout_ms=1000)).column("value").to_pylist()
        assert sorted_values(got) == expected


async def test_new_records_come_at_once(address: str, topic: str) -> None:
    async with consumer_of(address, topic, auto_offset_reset="latest") as consumer:
        await consumer.getmany(timeout_ms=300)
        for number in range(5):
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0.05)
            await asyncio.to_thread(produce, address, topic, [b"%d" % number], partition=number % 3)
            assert (await asyncio.wait_for(waiting, PATIENCE_S)).value == b"%d" % number


async def test_a_record_larger_than_every_limit_is_read(address: str, topic: str) -> None:
    produce(address, topic, [b"small", bytes(900_000), b"behind"])
    settings = {"max_partition_fetch_bytes": 1000, "fetch_max_bytes": 1000}
    async with consumer_of(address, topic, **settings) as consumer:
        assert [len(message.value) for message in await read(consumer, 3)] == [5, 900_000, 6]


async def test_ends_and_offsets_by_time(address: str, topic: str) -> None:
    produce(address, topic, [b"a", b"b", b"c"], partition=1)
    parts = [TopicPartition(topic, number) for number in range(3)]
    async with consumer_of(address, topic) as consumer:
        assert await consumer.partitions_for_topic(topic) == {0, 1, 2}
        assert await consumer.beginning_offsets(parts) == dict.fromkeys(parts, 0)
        assert await consumer.end_offsets(parts) == {parts[0]: 0, parts[1]: 3, parts[2]: 0}
        times = [message.timestamp_ms for message in await read(consumer, 3)]
        found = await consumer.offsets_for_times({parts[0]: times[0], parts[1]: times[0]})
        assert found[parts[0]] is None
        first = found[parts[1]]
        assert first is not None
        assert (first.offset, first.timestamp_ms) == (0, times[0])
        assert await consumer.offsets_for_times({parts[1]: times[-1] + 1}) == {parts[1]: None}
        assert consumer.highwater(parts[1]) == 3
        assert consumer.lag(parts[1]) == 0
        assert topic in await consumer.topics()


async def test_positions_can_be_moved(address: str, topic: str) -> None:
    part = TopicPartition(topic, 0)
    produce(address, topic, [b"%d" % number for number in range(10)])
    async with consumer_of(address) as consumer:
        consumer.assign([part])
        assert len(await read(consumer, 10)) == 10
        consumer.seek(part, 4)
        assert (await consumer.getone()).value == b"4"
        assert await consumer.position(part) == 5
        await consumer.seek_to_end(part)
        assert await consumer.position(part) == 10
        await consumer.seek_to_beginning(part)
        consumer.pause(part)
        assert await consumer.getmany(timeout_ms=300) == {}
        consumer.resume(part)
        assert (await consumer.getone()).value == b"0"


async def test_deleted_records_are_passed_over_by_policy_or_told(address: str, topic: str) -> None:
    part = TopicPartition(topic, 0)
    produce(address, topic, [b"%d" % number for number in range(10)])
    delete = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=6)]),
        ],
        timeout_ms=10_000,
    )
    with RawClient(int(address.rpartition(":")[2])) as raw:
        answer = raw.call(delete, 2, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].error_code == 0
    async with consumer_of(address) as consumer:
        consumer.assign([part])
        consumer.seek(part, 2)
        assert (await consumer.getone()).offset == 6
    async with consumer_of(address, auto_offset_reset="none") as consumer:
        consumer.assign([part])
        consumer.seek(part, 2)
        with pytest.raises(OffsetOutOfRange, match=re.escape(f"{part} does not hold offset 2")):
            await asyncio.wait_for(consumer.getone(), PATIENCE_S)


async def test_without_a_policy_a_group_without_offsets_is_an_error(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    async with consumer_of(address, topic, group_id=unique("group"), auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffset):
            await asyncio.wait_for(consumer.getone(), PATIENCE_S)


async def test_a_missing_topic_is_made_if_the_broker_does_that(address: str, unique: Callable[[str], str]) -> None:
    name = unique("made")
    async with consumer_of(address, name) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=200)
        produce(address, name, [b"first"])
        assert (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value == b"first"


@pytest.mark.parametrize("protocol", [None, "classic", "consumer"])
async def test_a_pattern_is_resolved_here_or_by_the_broker(
    address: str, unique: Callable[[str], str], protocol: str | None
) -> None:
    base = unique("orders").replace("-", ".")
    for name in (f"{base}.eu", f"{base}.us", f"all.{base}.eu", f"{base}.eu.old"):
        produce(address, name, [name.encode()])
    settings = {} if protocol is None else {"group_id": unique("group"), "group_protocol": protocol}
    async with consumer_of(address, metadata_max_age_ms=500, **settings) as consumer:
        consumer.subscribe(pattern=re.escape(base) + r"\.(eu|us)")
        got = sorted(message.value for message in await read(consumer, 2))
        assert got == [f"{base}.eu".encode(), f"{base}.us".encode()]
        assert await consumer.getmany(timeout_ms=500) == {}


async def test_committed_transactions_are_read_and_aborted_ones_are_not(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    part = TopicPartition(topic, 0)
    producer = ConfluentProducer({"bootstrap.servers": address, "transactional.id": unique("id"), "linger.ms": 0})
    await asyncio.to_thread(producer.init_transactions, PATIENCE_S)

    def transaction(values: list[bytes], commit: bool) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        if commit:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)

    await asyncio.to_thread(transaction, [b"kept 1", b"kept 2"], True)
    await asyncio.to_thread(transaction, [b"gone 1", b"gone 2"], False)
    await asyncio.to_thread(transaction, [b"kept 3"], True)
    settings = {"isolation_level": "read_committed", "group_id": unique("group")}
    async with consumer_of(address, topic, **settings) as consumer:
        assert [message.value for message in await read(consumer, 3)] == [b"kept 1", b"kept 2", b"kept 3"]
        await consumer.getmany(timeout_ms=300)
        assert await consumer.position(part) == 8
        await consumer.commit()
        assert await consumer.committed(part) == 8
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        await asyncio.to_thread(producer.flush, PATIENCE_S)
        assert await consumer.end_offsets([part]) == {part: 8}
        assert await consumer.getmany(timeout_ms=300) == {}
        assert consumer.last_stable_offset(part) == 8
        async with consumer_of(address) as everything:
            assert await everything.end_offsets([part]) == {part: 9}
            everything.assign([part])
            assert len(await read(everything, 6)) == 6
        await asyncio.to_thread(producer.abort_transaction, PATIENCE_S)
        await asyncio.to_thread(transaction, [b"kept 4"], True)
        assert [message.value for message in await read(consumer, 1)] == [b"kept 4"]
