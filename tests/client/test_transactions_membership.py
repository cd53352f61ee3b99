"""Offsets in a transaction count only while their reader is a member of its group: else two would commit the same work.

In the simulated world, where a program can be slow without anybody waiting for it. Our broker alone runs there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client_world import ClientWorld, batch_of
from semel.client.consumer.consumer import Consumer
from semel.client.errors import AbortTransactionError
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.client.values import GroupIdentity

INPUT = "input"
OUTPUT = "output"
GROUP = "workers"
SLOW_S = 30.0

protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])
generations = pytest.mark.parametrize("generation", [1, 2])


class Worker:
    """A consumer of the group, and a transactional producer of its own."""

    def __init__(self, world: ClientWorld, name: str, protocol: str) -> None:
        self.producer = Producer(host=world.host(), bootstrap_servers=world.address, transactional_id=name)
        self.consumer = Consumer(
            INPUT,
            host=world.host(),
            bootstrap_servers=world.address,
            group_id=GROUP,
            group_protocol=protocol,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=2_000,
            max_poll_interval_ms=12_000,
        )

    async def start(self) -> Worker:
        await self.producer.start()
        await self.producer.init_transactions()
        await self.consumer.start()
        return self

    async def read(self) -> list[Any]:
        while not (found := await self.consumer.getmany(timeout_ms=5_000)):
            pass
        return [message for messages in found.values() for message in messages]

    async def write(self, messages: list[Any]) -> None:
        await self.producer.begin()
        for message in messages:
            await self.producer.send(OUTPUT, message.value)

    async def commit(self, messages: list[Any], identity: GroupIdentity | None = None) -> None:
        positions = {TopicPartition(INPUT, 0): messages[-1].offset + 1}
        await self.producer.send_offsets_to_transaction(positions, identity or self.consumer.group_metadata())
        await self.producer.commit()

    async def close(self) -> None:
        await self.consumer.close()
        await self.producer.close()


async def with_input(world: ClientWorld) -> None:
    await world.create_topic(INPUT, 1)
    await world.create_topic(OUTPUT, 1)
    client = await world.node.client()
    assert (await client.produce(INPUT, batch_of(b"1", b"2"))).error_code == 0
    client.close()


async def outputs(world: ClientWorld) -> list[bytes | None]:
    await asyncio.sleep(1)
    return [record.value for record in await world.logged(OUTPUT, 0) if record.is_committed]


@protocols
@generations
def test_offsets_go_with_the_transaction_or_not_at_all(generation: int, protocol: str) -> None:
    async def scenario(world: ClientWorld) -> None:
        await with_input(world)
        first = await Worker(world, "first", protocol).start()
        messages = await first.read()
        await first.write(messages)
        positions = {TopicPartition(INPUT, 0): 2}
        await first.producer.send_offsets_to_transaction(positions, first.consumer.group_metadata())
        await first.producer.abort()
        assert await first.consumer.committed(TopicPartition(INPUT, 0)) is None
        await first.write(messages)
        await first.commit(messages)
        assert await first.consumer.committed(TopicPartition(INPUT, 0)) == 2
        await first.close()
        assert await outputs(world) == [b"1", b"2"]

    ClientWorld(1, generation=generation).run(scenario)


@protocols
@generations
@pytest.mark.parametrize("asks", ["when it has read", "when it commits"])
def test_a_worker_that_the_group_goes_on_without_cannot_commit_what_it_has_read(
    generation: int, protocol: str, asks: str
) -> None:
    """Whether it asks who it is before it lost its place, or after."""

    async def scenario(world: ClientWorld) -> None:
        await with_input(world)
        slow = await Worker(world, "slow", protocol).start()
        read_slowly = await slow.read()
        identity = slow.consumer.group_metadata() if asks == "when it has read" else None
        await slow.write(read_slowly)
        quick = await Worker(world, "quick", protocol).start()
        messages = await quick.read()
        await quick.write(messages)
        await quick.commit(messages)
        await asyncio.sleep(SLOW_S)
        with pytest.raises(AbortTransactionError):
            await slow.commit(read_slowly, identity)
        await slow.producer.abort()
        await quick.close()
        await slow.close()
        assert await outputs(world) == [b"1", b"2"]

    ClientWorld(1, generation=generation).run(scenario)
