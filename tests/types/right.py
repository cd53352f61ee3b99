"""What type checkers have to take as it is, and what they have to know of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, assert_type

import semel
import semel.sync


@dataclass
class Order:
    number: int

    @classmethod
    def read(cls, data: bytes) -> Order:
        return cls(int(json.loads(data)))

    def write(self) -> bytes:
        return b"%d" % self.number


async def plain() -> None:
    async with semel.Producer(bootstrap_servers="localhost:9092", acks="all", linger_ms=5) as producer:
        delivery = await producer.send("orders", b"1", key="text", headers={"trace": b"1"})
        assert_type(await delivery, semel.RecordMetadata)
    async with semel.Consumer("orders", ["more"], group_id="g", auto_offset_reset="earliest") as consumer:
        async for message in consumer:
            assert_type(message, semel.Message[bytes, bytes])
            assert_type(message.value, bytes | None)
        for batch in (await consumer.getmany(timeout_ms=10)).values():
            assert_type(batch, list[semel.Message[bytes, bytes]])


def bare(message: semel.Message) -> bytes | None:
    """Without parameters it is a message of bytes."""
    return message.value


async def typed() -> None:
    async with (
        semel.Consumer(
            "orders", group_id="g", key_deserializer=bytes.decode, value_deserializer=Order.read
        ) as consumer,
        semel.Producer(transactional_id="t", value_serializer=Order.write) as producer,
    ):
        async for batch in semel.transform(consumer, producer, "exactly_once"):
            for message in batch:
                assert_type(message, semel.Message[str, Order])
                if message.value is not None:
                    await producer.send("checked", message.value, key=message.key)


def blocking(settings: dict[str, Any]) -> None:
    with semel.sync.Consumer("orders", value_deserializer=Order.read, isolation_level="read_committed") as consumer:
        assert_type(consumer.getone(), semel.Message[bytes, Order])
        for message in consumer:
            assert_type(message.value, Order | None)
    with semel.sync.Producer(value_serializer=Order.write, **settings) as producer:
        producer.send("orders", Order(1)).result(timeout_s=3)


async def administer() -> None:
    async with semel.Admin(bootstrap_servers=["one:9092", "two:9092"], request_timeout_ms=1000) as admin:
        await admin.create_topics(semel.NewTopic("orders", partitions=3))


async def handle(work: Awaitable[None]) -> None:
    try:
        await work
    except semel.errors.ProducerFenced as error:
        print(error.code)
