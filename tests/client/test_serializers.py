"""Serializers with a registry, in a producer and a consumer on a real broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import semel
import semel.sync
from registry_server import RegistryServer
from semel.client.admin.values import NewTopic
from semel.client.serialization import NotReady, SerializationContext
from semel.serializers import Avro, Json, RegistryUnavailable, SchemaRegistry
from semel.testing import Broker

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]}


@dataclass
class Order:
    number: int


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


async def test_objects_go_in_and_come_out(semel_broker: Broker, registry: RegistryServer) -> None:
    address = semel_broker.bootstrap_servers
    async with semel.Producer(
        bootstrap_servers=address,
        key_serializer=Json(str),
        value_serializer=Avro(SchemaRegistry(registry.url), SCHEMA, Order),
    ) as producer:
        for number in range(100):
            await producer.send("orders", Order(number), key=str(number))
    async with semel.Consumer(
        "orders",
        bootstrap_servers=address,
        auto_offset_reset="earliest",
        key_deserializer=Json(str),
        value_deserializer=Avro(SchemaRegistry(registry.url), SCHEMA, Order),
    ) as consumer:
        found = [await consumer.getone() for _ in range(100)]
    assert [(message.key, message.value) for message in found] == [(str(n), Order(n)) for n in range(100)]
    assert registry.asked == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]


def test_nothing_is_lost_while_a_registry_is_away(semel_broker: Broker, registry: RegistryServer) -> None:
    """Records of another partition, and those before it, are handed out; the rest when the schema is there."""
    address = semel_broker.bootstrap_servers
    with semel.sync.Admin(bootstrap_servers=address) as admin:
        admin.create_topics(NewTopic("orders", partitions=2))
    with semel.sync.Producer(
        bootstrap_servers=address, value_serializer=Avro(SchemaRegistry(registry.url), SCHEMA, Order)
    ) as producer:
        for number in range(10):
            producer.send("orders", Order(number), partition=number % 2)
    with semel.sync.Producer(
        bootstrap_servers=address,
        value_serializer=Avro(SchemaRegistry(registry.url), {**SCHEMA, "doc": "a newer one"}, Order),
    ) as producer:
        for number in range(10, 20):
            producer.send("orders", Order(number), partition=number % 2)
    with semel.sync.Consumer(
        "orders",
        bootstrap_servers=address,
        group_id="g",
        auto_offset_reset="earliest",
        value_deserializer=Avro(SchemaRegistry(registry.url), SCHEMA, Order),
    ) as consumer:
        found: list[int] = []
        failures = 0
        registry.failures += [503]
        while len(found) < 20:
            try:
                batch = consumer.poll(timeout_ms=5000)
            except RegistryUnavailable:
                failures += 1
                registry.failures += [503] * (failures < 3)
                continue
            assert batch, f"only {found} came"
            found += [message.value.number for part in batch.values() for message in part if message.value is not None]
            if len(found) >= 10 and failures < 3:
                registry.failures += [503]
    assert failures == 3
    assert sorted(found) == list(range(20))


def test_the_command_line_shows_what_a_registry_describes(semel_broker: Broker, registry: RegistryServer) -> None:
    address = semel_broker.bootstrap_servers
    with semel.sync.Producer(
        bootstrap_servers=address, value_serializer=Avro(SchemaRegistry(registry.url), SCHEMA, Order)
    ) as producer:
        producer.send("orders", Order(7), key="plain")
    command = [sys.executable, "-m", "semel.cli.main", "consume", "orders", "--bootstrap", address]
    options = ["--decode", "--registry", registry.url, "--format", "{key} {value}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == 'plain {"number": 7}\n', done.stderr
    refused = subprocess.run([*command, "--decode", "--registry", "x"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "'x' is no address of a schema registry" in refused.stderr
    assert "Traceback" not in refused.stderr


class Late:
    """Needs something for values that begin with `new`, and gets it when it is asked for."""

    def __init__(self) -> None:
        self.fetches = 0

    def deserialize(self, data: bytes, context: SerializationContext) -> bytes:
        if data.startswith(b"new") and not self.fetches:
            raise NotReady(self._fetch)
        return data + context.field.encode()

    def _fetch(self) -> None:
        self.fetches += 1


@pytest.mark.parametrize("first", [0, 1])
async def test_what_was_taken_of_one_partition_is_not_lost_when_another_must_wait(
    semel_broker: Broker, first: int
) -> None:
    address, late = semel_broker.bootstrap_servers, Late()
    async with semel.Admin(bootstrap_servers=address) as admin:
        await admin.create_topics(NewTopic("late", partitions=2))
    async with semel.Producer(bootstrap_servers=address) as producer:
        for number in range(5):
            await producer.send("late", b"old %d " % number, partition=first)
        await producer.send("late", b"new ", partition=1 - first)
    async with semel.Consumer(bootstrap_servers=address, value_deserializer=late) as consumer:
        consumer.assign([semel.TopicPartition("late", 0), semel.TopicPartition("late", 1)])
        await consumer.seek_to_beginning()
        await asyncio.sleep(1)  # both are held then, and one poll would hand out both
        found: list[bytes | None] = []
        while part := await consumer.getmany(timeout_ms=1000):
            found += [message.value for messages in part.values() for message in messages]
    assert late.fetches == 1
    assert sorted(value or b"" for value in found) == [b"new value", *(b"old %d value" % n for n in range(5))]
