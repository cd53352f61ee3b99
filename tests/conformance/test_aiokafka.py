"""aiokafka against a real broker: topics, idempotent produce with every codec, reads by assignment, admin calls."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidReplicationFactorError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownProducerId,
    UnknownTopicOrPartitionError,
)
from sample_records import CODECS, FIRST_TIMESTAMP_MS, STEP_MS, Sample, sample_records, stored_batches, stored_codecs

from real_broker import Brokers, RealBroker

COUNT = 200
WAIT_S = 20.0
FORGETFUL = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "200"}
_numbers = itertools.count()


def new_name(word: str) -> str:
    return f"aiokafka-{word}-{next(_numbers)}"


def admin(broker: RealBroker) -> AIOKafkaAdminClient:
    return AIOKafkaAdminClient(bootstrap_servers=broker.address)


async def create(broker: RealBroker, topic: str, partitions: int = 1, **configs: str) -> int:
    """The error code."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    client = admin(broker)
    await client.start()
    try:
        answer = await client.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
    finally:
        await client.close()
    code: int = answer.topic_errors[0][1]
    return code


def producer(broker: RealBroker, **config: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=broker.address, enable_idempotence=True, acks="all", **{"linger_ms": 5, **config}
    )


async def produce_all(sender: AIOKafkaProducer, topic: str, samples: list[Sample], partition: int = 0) -> list[int]:
    futures = [
        await sender.send(
            topic,
            sample.value,
            sample.key,
            partition,
            timestamp_ms=sample.timestamp_ms,
            headers=list(sample.headers),
        )
        for sample in samples
    ]
    return [metadata.offset for metadata in await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)]


def consumer(broker: RealBroker, **config: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=broker.address, group_id=None, enable_auto_commit=False, auto_offset_reset="none", **config
    )


async def read_all(broker: RealBroker, topic: str, offset: int | None, count: int, **config: Any) -> list[Any]:
    """From the beginning when `offset` is None."""
    place = TopicPartition(topic, 0)
    async with consumer(broker, **config) as reader:
        reader.assign([place])
        if offset is None:
            await reader.seek_to_beginning(place)
        else:
            reader.seek(place, offset)
        return [await asyncio.wait_for(reader.getone(), WAIT_S) for _ in range(count)]


def as_sample(record: Any) -> Sample:
    return Sample(record.key, record.value, tuple(record.headers), record.timestamp)


@pytest.mark.parametrize("codec", CODECS)
async def test_what_is_produced_with_a_codec_is_read_from_start_offset_and_time(broker: RealBroker, codec: str) -> None:
    topic = new_name(codec)
    assert await create(broker, topic) == 0
    samples = sample_records(COUNT)
    async with producer(broker, compression_type=None if codec == "none" else codec, linger_ms=50) as sender:
        assert await produce_all(sender, topic, samples) == list(range(COUNT))
    assert codec in stored_codecs(broker.data, topic)
    assert all(header.is_idempotent for header in stored_batches(broker.data, topic))

    everything = await read_all(broker, topic, None, COUNT, check_crcs=True)
    assert [as_sample(record) for record in everything] == samples
    assert [record.offset for record in everything] == list(range(COUNT))
    for start in (1, 57, COUNT - 1):
        read = await read_all(broker, topic, start, COUNT - start)
        assert [as_sample(record) for record in read] == samples[start:]

    place = TopicPartition(topic, 0)
    async with consumer(broker) as reader:
        for number, moment_ms in ((80, 80 * STEP_MS), (81, 80 * STEP_MS + 1), (0, -5)):
            found = (await reader.offsets_for_times({place: FIRST_TIMESTAMP_MS + moment_ms}))[place]
            assert (found.offset, found.timestamp) == (number, samples[number].timestamp_ms)
        assert (await reader.offsets_for_times({place: FIRST_TIMESTAMP_MS + COUNT * STEP_MS}))[place] is None
        assert await reader.beginning_offsets([place]) == {place: 0}
        assert await reader.end_offsets([place]) == {place: COUNT}
    read = await read_all(broker, topic, 80, COUNT - 80)
    assert [as_sample(record) for record in read] == samples[80:]


async def test_a_read_committed_reader_sees_what_is_not_transactional(broker: RealBroker) -> None:
    topic = new_name("committed")
    await create(broker, topic)
    samples = sample_records(20)
    async with producer(broker) as sender:
        await produce_all(sender, topic, samples)
    read = await read_all(broker, topic, None, 20, isolation_level="read_committed")
    assert [as_sample(record) for record in read] == samples


async def test_a_reader_at_the_end_gets_what_comes_next(broker: RealBroker) -> None:
    topic = new_name("tail")
    await create(broker, topic)
    place = TopicPartition(topic, 0)
    samples = sample_records(10)
    async with consumer(broker, fetch_max_wait_ms=5000) as reader, producer(broker) as sender:
        reader.assign([place])
        reader.seek(place, 0)
        waiting = asyncio.ensure_future(reader.getone())
        await asyncio.sleep(0.3)
        started = time.monotonic()
        await produce_all(sender, topic, samples)
        assert as_sample(await asyncio.wait_for(waiting, WAIT_S)) == samples[0]
        # Woken by the write, not by the end of its wait.
        assert time.monotonic() - started < 4


async def test_an_offset_beyond_the_end_is_out_of_range(broker: RealBroker) -> None:
    topic = new_name("range")
    await create(broker, topic)
    async with producer(broker) as sender:
        await produce_all(sender, topic, sample_records(3))
    with pytest.raises(OffsetOutOfRangeError):
        await read_all(broker, topic, 1000, 1)


async def test_large_messages_of_one_megabyte_come_back_whole(broker: RealBroker) -> None:
    topic = new_name("large")
    await create(broker, topic, max_message_bytes=str(4 << 20))
    samples = [Sample(b"k", bytes([number]) * (1 << 20), (), FIRST_TIMESTAMP_MS) for number in range(3)]
    async with producer(broker, max_request_size=4 << 20) as sender:
        assert await produce_all(sender, topic, samples) == [0, 1, 2]
    read = await read_all(broker, topic, 0, 3, max_partition_fetch_bytes=2 << 20)
    assert [as_sample(record) for record in read] == samples


async def test_a_batch_over_the_topics_limit_is_refused_and_the_next_is_taken(broker: RealBroker) -> None:
    topic = new_name("limit")
    await create(broker, topic, max_message_bytes="2000")
    async with producer(broker, linger_ms=0) as sender:
        with pytest.raises(MessageSizeTooLargeError):
            await sender.send_and_wait(topic, b"x" * 5000, partition=0)
    async with producer(broker, linger_ms=0) as sender:
        assert (await sender.send_and_wait(topic, b"y" * 100, partition=0)).offset == 0


async def test_a_producer_creates_its_topic(broker: RealBroker) -> None:
    topic = new_name("made-by-producer")
    samples = sample_records(5)
    async with producer(broker) as sender:
        assert await produce_all(sender, topic, samples) == list(range(5))
    assert [as_sample(record) for record in await read_all(broker, topic, 0, 5)] == samples


async def test_without_auto_creation_an_unknown_topic_is_an_error(brokers: Brokers) -> None:
    broker = brokers.start(settings={"auto.create.topics.enable": "false"})
    async with producer(broker, request_timeout_ms=1500) as sender:
        with pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)):
            await sender.send_and_wait("nowhere", b"x")
    async with consumer(broker) as reader:
        assert await reader.topics() == set()


async def test_a_producer_that_was_forgotten_is_of_no_more_use_and_another_goes_on(brokers: Brokers) -> None:
    """docs/clients.md: UNKNOWN_PRODUCER_ID."""
    broker = brokers.start(settings=FORGETFUL)
    await create(broker, "forgotten")
    async with producer(broker) as sender:
        assert [(await sender.send_and_wait("forgotten", b"v")).offset for _ in range(2)] == [0, 1]
        await asyncio.sleep(3)
        for _ in range(2):
            with pytest.raises(UnknownProducerId):
                await sender.send_and_wait("forgotten", b"v")
    async with producer(broker) as another:
        assert (await another.send_and_wait("forgotten", b"v")).offset == 2


async def test_a_producer_that_was_idle_past_the_limit_goes_on(brokers: Brokers) -> None:
    broker = brokers.start(settings={"connections.max.idle.ms": "500"})
    samples = sample_records(30)
    async with producer(broker) as sender:
        await produce_all(sender, "idle", samples[:10])
        for part in (samples[10:20], samples[20:]):
            await asyncio.sleep(1.2)
            await produce_all(sender, "idle", part)
    assert [as_sample(record) for record in await read_all(broker, "idle", 0, 30)] == samples


async def test_topics_are_created_described_widened_and_deleted(broker: RealBroker) -> None:
    topic = new_name("admin")
    assert await create(broker, topic, partitions=2, retention_ms="86400000") == 0
    assert await create(broker, topic) == TopicAlreadyExistsError.errno
    client = admin(broker)
    await client.start()
    try:
        bad = await client.create_topics([NewTopic(new_name("bad"), 1, 3)])
        assert bad.topic_errors[0][1] == InvalidReplicationFactorError.errno
        await client.create_partitions({topic: NewPartitions(5)})
        (described,) = await client.describe_topics([topic])
        assert len(described["partitions"]) == 5

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = await client.describe_configs([resource])
        configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert configs["retention.ms"] == "86400000"
        await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": "100000"})])
        (answer,) = await client.describe_configs([resource])
        configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert configs["segment.bytes"] == "100000"

        samples = sample_records(40)
        async with producer(broker) as sender:
            await produce_all(sender, topic, samples)
        place = TopicPartition(topic, 0)
        assert await client.delete_records({place: RecordsToDelete(before_offset=25)}) == {place: 25}
        assert [as_sample(record) for record in await read_all(broker, topic, None, 15)] == samples[25:]

        cluster = await client.describe_cluster()
        assert [(node["host"], node["port"]) for node in cluster["brokers"]] == [("127.0.0.1", broker.port)]
        await client.delete_topics([topic])
        assert topic not in await client.list_topics()
    finally:
        await client.close()


def test_the_broker_logged_no_failure(broker: RealBroker) -> None:
    assert "Traceback" not in broker.log()
