"""One measurement of one client, in a process of its own: `python client_workers.py NAME ADDRESS TOPIC COUNT BYTES`.

Prints the seconds that the work itself took, without start and imports. Every client runs with the same settings:
idempotent, acks from all, the same linger and batch size, one partition.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

LINGER_MS = 5
BATCH_BYTES = 128 << 10
FETCH_BYTES = 4 << 20


def value_of(size: int) -> bytes:
    return (b"semel" * (size // 5 + 1))[:size]


# -- producing


async def _semel_produce(address: str, topic: str, count: int, size: int) -> float:
    import semel

    value = value_of(size)
    async with semel.Producer(bootstrap_servers=address, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        await producer.send_and_wait(topic, value)
        began = time.perf_counter()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        return time.perf_counter() - began


def semel_produce(address: str, topic: str, count: int, size: int) -> float:
    return asyncio.run(_semel_produce(address, topic, count, size))


def semel_sync_produce(address: str, topic: str, count: int, size: int) -> float:
    import semel.sync

    value = value_of(size)
    with semel.sync.Producer(bootstrap_servers=address, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        producer.send_and_wait(topic, value)
        began = time.perf_counter()
        for _ in range(count):
            producer.send(topic, value)
        producer.flush()
        return time.perf_counter() - began


async def _semel_columns_produce(address: str, topic: str, count: int, size: int) -> float:
    import pyarrow

    import semel

    rows = min(count, 20_000)
    table = pyarrow.table({"value": pyarrow.array([value_of(size)] * rows, pyarrow.binary())})
    async with semel.Producer(bootstrap_servers=address, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        await producer.send_and_wait(topic, b"first")
        began = time.perf_counter()
        for _ in range(count // rows):
            await producer.send_columns(topic, table)
        await producer.flush()
        return time.perf_counter() - began


def semel_columns_produce(address: str, topic: str, count: int, size: int) -> float:
    return asyncio.run(_semel_columns_produce(address, topic, count, size))


def confluent_produce(address: str, topic: str, count: int, size: int) -> float:
    from confluent_kafka import Producer

    value = value_of(size)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.produce(topic, value)
    producer.flush()
    began = time.perf_counter()
    produce, poll = producer.produce, producer.poll
    for index in range(count):
        while True:
            try:
                produce(topic, value)
                break
            except BufferError:
                poll(0.01)
        if index % 1000 == 0:
            poll(0)
    producer.flush()
    return time.perf_counter() - began


async def _aiokafka_produce(address: str, topic: str, count: int, size: int) -> float:
    from aiokafka import AIOKafkaProducer

    value = value_of(size)
    producer = AIOKafkaProducer(
        bootstrap_servers=address, enable_idempotence=True, linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
    )
    await producer.start()
    await producer.send_and_wait(topic, value)
    began = time.perf_counter()
    for _ in range(count):
        await producer.send(topic, value)
    await producer.flush()
    seconds = time.perf_counter() - began
    await producer.stop()
    return seconds


def aiokafka_produce(address: str, topic: str, count: int, size: int) -> float:
    return asyncio.run(_aiokafka_produce(address, topic, count, size))


def kafka_python_produce(address: str, topic: str, count: int, size: int) -> float:
    from kafka import KafkaProducer

    value = value_of(size)
    producer = KafkaProducer(
        bootstrap_servers=address,
        enable_idempotence=True,
        acks="all",
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        max_in_flight_requests_per_connection=5,
    )
    producer.send(topic, value).get(30)
    began = time.perf_counter()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    seconds = time.perf_counter() - began
    producer.close()
    return seconds


# -- consuming


async def _semel_consume(address: str, topic: str, count: int, size: int) -> float:
    import semel

    async with semel.Consumer(bootstrap_servers=address, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        consumer.assign([semel.TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        await consumer.getone()
        began, left = time.perf_counter(), count
        while left > 0:
            for messages in (await consumer.getmany(timeout_ms=1000, max_records=5000)).values():
                for message in messages:
                    _ = message.value
                left -= len(messages)
        return time.perf_counter() - began


def semel_consume(address: str, topic: str, count: int, size: int) -> float:
    return asyncio.run(_semel_consume(address, topic, count, size))


async def _semel_iterate(address: str, topic: str, count: int, size: int) -> float:
    import semel

    async with semel.Consumer(bootstrap_servers=address, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        consumer.assign([semel.TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        await consumer.getone()
        began, left = time.perf_counter(), count
        async for message in consumer:
            _ = message.value
            left -= 1
            if left == 0:
                break
        return time.perf_counter() - began


def semel_iterate(address: str, topic: str, count: int, size: int) -> float:
    return asyncio.run(_semel_iterate(address, topic, count, size))


def semel_sync_consume(address: str, topic: str, count: int, size: int) -> float:
    import semel.sync

    with semel.sync.Consumer(bootstrap_servers=address, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        consumer.assign([semel.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        consumer.poll(timeout_ms=5000, max_records=1)
        began, left = time.perf_counter(), count
        while left > 0:
            for messages in consumer.poll(timeout_ms=1000, max_records=5000).values():
                for message in messages:
                    _ = message.value
                left -= len(messages)
        return time.perf_counter() - began


async def _semel_columns_consume(address: str, topic: str, count: int, size: int) -> float:
    import semel

    async with semel.Consumer(bootstrap_servers=address, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        consumer.assign([semel.TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        await consumer.getone()
        began, left = time.perf_counter(), count
        while left > 0:
            left -= (await consumer.poll_columns(timeout_ms=1000)).num_rows
        return time.perf_counter() - began


def semel_columns_consume(address: str, topic: str, count: int, size: int) -> float:
    return asyncio.run(_semel_columns_consume(address, topic, count, size))


def confluent_consume(address: str, topic: str, count: int, size: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.consume(1, 10)
    began, left = time.perf_counter(), count
    while left > 0:
        messages = consumer.consume(5000, 1)
        for message in messages:
            _ = message.value()
        left -= len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


async def _aiokafka_consume(address: str, topic: str, count: int, size: int) -> float:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=address, max_partition_fetch_bytes=FETCH_BYTES)
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.seek_to_beginning()
    await consumer.getone()
    began, left = time.perf_counter(), count
    while left > 0:
        for messages in (await consumer.getmany(timeout_ms=1000, max_records=5000)).values():
            for message in messages:
                _ = message.value
            left -= len(messages)
    seconds = time.perf_counter() - began
    await consumer.stop()
    return seconds


def aiokafka_consume(address: str, topic: str, count: int, size: int) -> float:
    return asyncio.run(_aiokafka_consume(address, topic, count, size))


async def _aiokafka_iterate(address: str, topic: str, count: int, size: int) -> float:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=address, max_partition_fetch_bytes=FETCH_BYTES)
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.seek_to_beginning()
    await consumer.getone()
    began, left = time.perf_counter(), count
    async for message in consumer:
        _ = message.value
        left -= 1
        if left == 0:
            break
    seconds = time.perf_counter() - began
    await consumer.stop()
    return seconds


def aiokafka_iterate(address: str, topic: str, count: int, size: int) -> float:
    return asyncio.run(_aiokafka_iterate(address, topic, count, size))


def kafka_python_consume(address: str, topic: str, count: int, size: int) -> float:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, max_partition_fetch_bytes=FETCH_BYTES)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    while not consumer.poll(timeout_ms=1000, max_records=1):
        pass
    began, left = time.perf_counter(), count
    while left > 0:
        for messages in consumer.poll(timeout_ms=1000, max_records=5000).values():
            for message in messages:
                _ = message.value
            left -= len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


WORKERS: dict[str, Callable[[str, str, int, int], float]] = {
    worker.__name__: worker
    for worker in (
        semel_produce,
        semel_sync_produce,
        semel_columns_produce,
        confluent_produce,
        aiokafka_produce,
        kafka_python_produce,
        semel_consume,
        semel_iterate,
        semel_sync_consume,
        semel_columns_consume,
        confluent_consume,
        aiokafka_consume,
        aiokafka_iterate,
        kafka_python_consume,
    )
}

if __name__ == "__main__":
    name, address, topic, count, size = sys.argv[1:]
    print(WORKERS[name](address, topic, int(count), int(size)))
