"""A consume-transform-produce pass in one transaction, call by call, by each of three clients; it dies where told.

Run as a program: `transaction_steps.py <client> <address> <input> <output> <group and transactional id> <last step>`.
It exits without a word to the broker right after the named step, as a process that is killed does. The offsets are in
the transaction, so whoever comes next begins where the last committed transaction ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

STEPS = ("initialised", "read", "begun", "sent", "flushed", "offsets sent", "committed")
BATCH = 5
WAIT_S = 20

Died = Callable[[str], None]


def with_confluent(address: str, source: str, target: str, name: str, after: Died) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": address, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    after("initialised")
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": name,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    place = TopicPartition(source, 0)
    (stored,) = consumer.committed([place], WAIT_S)
    start = max(stored.offset, 0)
    consumer.assign([TopicPartition(source, 0, start)])
    values: list[bytes] = []
    while len(values) < BATCH:
        message = consumer.poll(WAIT_S)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    after("read")
    producer.begin_transaction()
    after("begun")
    for value in values:
        producer.produce(target, b"out of " + value, partition=0)
    after("sent")
    assert producer.flush(WAIT_S) == 0
    after("flushed")
    offsets = [TopicPartition(source, 0, start + BATCH)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
    after("offsets sent")
    producer.commit_transaction(WAIT_S)
    after("committed")


def with_kafka_python(address: str, source: str, target: str, name: str, after: Died) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    producer = KafkaProducer(bootstrap_servers=address, transactional_id=name)
    producer.init_transactions()
    after("initialised")
    consumer = KafkaConsumer(
        bootstrap_servers=address, group_id=name, enable_auto_commit=False, isolation_level="read_committed"
    )
    place = TopicPartition(source, 0)
    consumer.assign([place])
    start = consumer.committed(place) or 0
    consumer.seek(place, start)
    values: list[bytes] = []
    while len(values) < BATCH:
        found = consumer.poll(timeout_ms=1000, max_records=BATCH - len(values))
        values += [record.value for records in found.values() for record in records]
    after("read")
    producer.begin_transaction()
    after("begun")
    for value in values:
        producer.send(target, b"out of " + value, partition=0)
    after("sent")
    producer.flush(WAIT_S)
    after("flushed")
    producer.send_offsets_to_transaction({place: OffsetAndMetadata(start + BATCH, "", -1)}, consumer.group_metadata())
    after("offsets sent")
    producer.commit_transaction()
    after("committed")


async def with_aiokafka(address: str, source: str, target: str, name: str, after: Died) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=name)
    await producer.start()
    after("initialised")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, group_id=name, enable_auto_commit=False, isolation_level="read_committed"
    )
    await consumer.start()
    place = TopicPartition(source, 0)
    consumer.assign([place])
    start = await consumer.committed(place) or 0
    consumer.seek(place, start)
    values: list[bytes] = []
    while len(values) < BATCH:
        values.append((await asyncio.wait_for(consumer.getone(), WAIT_S)).value)
    after("read")
    await producer.begin_transaction()
    after("begun")
    for value in values:
        await producer.send(target, b"out of " + value, partition=0)
    after("sent")
    await producer.flush()
    after("flushed")
    await producer.send_offsets_to_transaction({place: start + BATCH}, name)
    after("offsets sent")
    await producer.commit_transaction()
    after("committed")


def main() -> None:
    client, address, source, target, name, last_step = sys.argv[1:]

    def after(step: str) -> None:
        if step == last_step:
            os._exit(0)

    if client == "aiokafka":
        asyncio.run(with_aiokafka(address, source, target, name, after))
    else:
        passes = {"confluent-kafka": with_confluent, "kafka-python": with_kafka_python}
        passes[client](address, source, target, name, after)
    raise SystemExit(f"{last_step!r} was never reached")


if __name__ == "__main__":
    main()
