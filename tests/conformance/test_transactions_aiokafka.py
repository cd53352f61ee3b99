"""aiokafka transactions on a real broker: commit, abort, isolation, offsets in the transaction, fencing."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, ProducerFenced

from real_broker import RealBroker

WAIT_S = 20.0
_numbers = itertools.count()


def new_name(word: str) -> str:
    return f"aiokafka-txn-{word}-{next(_numbers)}"


async def new_topic(broker: RealBroker, partitions: int = 1) -> str:
    topic = new_name("topic")
    client = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await client.start()
    await client.create_topics([NewTopic(topic, partitions, 1)])
    await client.close()
    return topic


async def producer(broker: RealBroker, name: str, **config: Any) -> AIOKafkaProducer:
    made = AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id=name, **config)
    await made.start()
    return made


async def transaction(made: AIOKafkaProducer, topic: str, values: list[bytes], *, commit: bool) -> None:
    await made.begin_transaction()
    for value in values:
        await made.send_and_wait(topic, value, partition=0)
    await (made.commit_transaction() if commit else made.abort_transaction())


async def read(broker: RealBroker, topic: str, isolation: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.address, isolation_level=isolation, auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    values = []
    while found := await consumer.getmany(timeout_ms=1500):
        values += [record.value for records in found.values() for record in records]
    await consumer.stop()
    return values


async def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: RealBroker) -> None:
    topic = await new_topic(broker)
    made = await producer(broker, new_name("id"))
    await transaction(made, topic, [b"a", b"b"], commit=True)
    await transaction(made, topic, [b"c"], commit=False)
    await transaction(made, topic, [b"d"], commit=True)
    assert await read(broker, topic, "read_committed") == [b"a", b"b", b"d"]
    assert await read(broker, topic, "read_uncommitted") == [b"a", b"b", b"c", b"d"]
    await made.stop()


async def test_a_zombie_is_fenced_and_its_open_transaction_aborted(broker: RealBroker) -> None:
    topic, name = await new_topic(broker), new_name("id")
    zombie = await producer(broker, name)
    await zombie.begin_transaction()
    await zombie.send_and_wait(topic, b"zombie", partition=0)
    made = await producer(broker, name)
    await transaction(made, topic, [b"mine"], commit=True)
    with pytest.raises(ProducerFenced):
        await zombie.commit_transaction()
    assert await read(broker, topic, "read_committed") == [b"mine"]
    await made.stop()
    try:
        await asyncio.wait_for(zombie.stop(), WAIT_S)
    except (KafkaError, TimeoutError):
        pass  # it is not forgiven


async def test_consume_transform_produce_with_a_group(broker: RealBroker) -> None:
    source, target, group = await new_topic(broker), await new_topic(broker), new_name("group")
    plain = AIOKafkaProducer(bootstrap_servers=broker.address)
    await plain.start()
    for number in range(40):
        await plain.send(source, b"%d" % number, partition=0)
    await plain.stop()
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=broker.address,
        group_id=group,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
    )
    await consumer.start()
    made = await producer(broker, group)
    place = TopicPartition(source, 0)
    done = 0
    for number in range(3):
        records = [await asyncio.wait_for(consumer.getone(), WAIT_S) for _ in range(10)]
        await made.begin_transaction()
        for record in records:
            await made.send(target, record.value, partition=0)
        await made.send_offsets_to_transaction({place: records[-1].offset + 1}, group)
        if number == 1:
            await made.abort_transaction()
            consumer.seek(place, await consumer.committed(place) or 0)
        else:
            await made.commit_transaction()
            done += 10
    assert await consumer.committed(place) == done
    await consumer.stop()
    await made.stop()
    assert await read(broker, target, "read_committed") == [b"%d" % number for number in range(done)]
