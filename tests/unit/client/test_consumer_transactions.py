"""Readers of committed records beside transactional producers, with our whole broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from consumer_world import Node, at, consumer_of, on_broker, values_of
from transaction_harness import TOPIC, V1, V2, started, with_transactions

PLACE = f"{TOPIC}-0"
BOTH = pytest.mark.parametrize("versions", [V1, V2], ids=["first generation", "second generation"])


@BOTH
@on_broker()
async def test_only_committed_records_are_shown_and_the_position_passes_the_markers(
    node: Node, versions: dict[str, int]
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    await producer.transaction(b"kept 1", b"kept 2")
    await producer.transaction(b"gone 1", b"gone 2", commit=False)
    await producer.transaction(b"kept 3")
    async with consumer_of(node, TOPIC, isolation_level="read_committed") as consumer:
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"kept 1", b"kept 2", b"kept 3"]
        assert await consumer.position(at(PLACE)) == 8, "2 + marker, 2 + marker, 1 + marker"
        assert consumer.lag(at(PLACE)) == 0
    async with consumer_of(node, TOPIC) as consumer:
        assert len(values_of(await consumer.getmany(timeout_ms=1000))) == 5
        assert await consumer.position(at(PLACE)) == 8


@BOTH
@on_broker()
async def test_an_open_transaction_holds_back_what_follows_and_ends_mean_the_stable_end(
    node: Node, versions: dict[str, int]
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    await producer.transaction(b"kept")
    if versions is V1:
        await producer.add()
    await producer.write(b"open")
    other = await started(client, versions, "other")
    await other.transaction(b"behind it")
    async with consumer_of(node, TOPIC, isolation_level="read_committed") as consumer:
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"kept"]
        assert await consumer.getmany(timeout_ms=1000) == {}
        assert await consumer.end_offsets([at(PLACE)]) == {at(PLACE): 2}
        assert consumer.last_stable_offset(at(PLACE)) == 2
        assert consumer.highwater(at(PLACE)) == 5
        assert consumer.lag(at(PLACE)) == 0
        await consumer.seek_to_end()
        assert await consumer.position(at(PLACE)) == 2
        await producer.abort()
        assert values_of(await consumer.getmany(timeout_ms=5000)) == [b"behind it"]
        assert await consumer.position(at(PLACE)) == 6
    async with consumer_of(node, TOPIC) as consumer:
        assert await consumer.end_offsets([at(PLACE)]) == {at(PLACE): 6}


@on_broker()
async def test_a_poll_that_finds_only_aborted_records_moves_the_position_and_waits_on(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    for number in range(5):
        await producer.transaction(b"gone %d" % number, commit=False)
    loop = asyncio.get_running_loop()
    async with consumer_of(node, TOPIC, isolation_level="read_committed", group_id="g") as consumer:
        began_s = loop.time()
        assert await consumer.getmany(timeout_ms=3000) == {}
        assert loop.time() - began_s == pytest.approx(3.0, abs=0.01)
        assert await consumer.position(at(PLACE)) == 10
        await consumer.commit()
        assert await consumer.committed(at(PLACE)) == 10, "also a commit reaches the end of the last marker"


@on_broker()
async def test_the_last_message_before_a_marker_brings_the_position_past_it(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    await producer.transaction(b"one", b"two")
    await producer.transaction(b"gone", commit=False)
    async with consumer_of(node, TOPIC, isolation_level="read_committed", group_id="g") as consumer:
        positions: list[Any] = []
        async for message in consumer:
            positions.append((message.value, await consumer.position(at(PLACE))))
            if message.value == b"two":
                break
        assert positions == [(b"one", 1), (b"two", 5)]
        await consumer.commit()
        assert await consumer.committed(at(PLACE)) == 5


@on_broker()
async def test_a_small_fetch_in_the_middle_of_an_aborted_transaction_hides_it_too(node: Node) -> None:
    """Each answer has its own list of aborted transactions, also of those that began before it."""
    client = await with_transactions(node)
    producer = await started(client, V2)
    for number in range(6):
        await producer.write(b"gone %d" % number, b"x" * 300)
    await producer.abort()
    await producer.transaction(b"kept")
    settings = {"isolation_level": "read_committed", "max_partition_fetch_bytes": 400}
    async with consumer_of(node, TOPIC, **settings) as consumer:
        assert (await consumer.getone()).value == b"kept"
    async with consumer_of(node, **settings) as consumer:
        consumer.assign([at(PLACE)])
        consumer.seek(at(PLACE), 5)
        assert (await consumer.getone()).value == b"kept"
