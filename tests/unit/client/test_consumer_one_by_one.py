"""Messages one by one, and through deserializers: loops that are left, begun again, and disturbed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from consumer_world import Node, at, batch_of, consumer_of, on_broker, produce, values_of

from semel.client.errors import Closed, DeserializerFailed


async def make_topic(node: Node, name: str = "t", partitions: int = 1) -> None:
    client = await node.client()
    assert (await client.create_topic(name, partitions)).error_code == 0
    client.close()


@on_broker()
async def test_a_loop_gives_every_message_once_and_can_be_begun_again(node: Node) -> None:
    await make_topic(node)
    for number in range(3):
        await produce(node, "t-0", b"a%d" % number, b"b%d" % number)
    async with consumer_of(node, "t") as consumer:
        got = []
        async for message in consumer:
            got.append(message.value)
            assert await consumer.position(at("t-0")) == message.offset + 1
            if len(got) == 3:
                break
        assert (await consumer.getone()).value == b"b1"
        async for message in consumer:
            got.append(message.value)
            if len(got) == 5:
                break
        assert got == [b"a0", b"b0", b"a1", b"a2", b"b2"]


@on_broker()
async def test_getone_and_getmany_inside_a_loop_take_their_messages_out_of_it(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", *[b"%d" % number for number in range(9)])
    async with consumer_of(node, "t") as consumer:
        got: list[Any] = []
        async for message in consumer:
            got.append(message.value)
            if message.value == b"1":
                got.append((await consumer.getone()).value)
            if message.value == b"3":
                got += values_of(await consumer.getmany(timeout_ms=10, max_records=2))
            if message.value == b"7":
                got.append((await consumer.getone()).value)
                break
        assert got == [b"%d" % number for number in range(9)]


@on_broker()
async def test_a_seek_inside_a_loop_counts_at_once(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", *[b"%d" % number for number in range(10)])
    async with consumer_of(node, "t") as consumer:
        got = []
        async for message in consumer:
            got.append(message.value)
            if message.value == b"2":
                consumer.seek(at("t-0"), 8)
            if message.value == b"9":
                break
        assert got == [b"0", b"1", b"2", b"8", b"9"]


@on_broker()
async def test_a_pause_inside_a_loop_counts_at_once_and_loses_nothing(node: Node) -> None:
    await make_topic(node, partitions=2)
    await produce(node, "t-0", b"0", b"1", b"2", b"3")
    async with consumer_of(node, "t") as consumer:
        got = []
        async for message in consumer:
            got.append(message.value)
            if message.value == b"1":
                consumer.pause(at("t-0"))
                await produce(node, "t-1", b"other")
            if message.value == b"other":
                consumer.resume(at("t-0"))
            if message.value == b"3":
                break
        assert got == [b"0", b"1", b"other", b"2", b"3"]


@on_broker()
async def test_a_loop_ends_when_the_consumer_is_closed(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", b"0", b"1")
    async with consumer_of(node, "t") as consumer:
        got = []

        async def loop() -> None:
            async for message in consumer:
                got.append(message.value)

        looping = asyncio.ensure_future(loop())
        await asyncio.sleep(1)
        await consumer.close()
        await looping
        assert got == [b"0", b"1"]
        with pytest.raises(Closed):
            await consumer.getmany()
        with pytest.raises(Closed):
            await consumer.getone()


# -- deserializers


@on_broker()
async def test_deserializers_make_keys_and_values_but_never_of_none(node: Node) -> None:
    await make_topic(node)
    client = await node.client()
    await client.produce("t", batch_of(b"1", None, keys=[b"k", None]))  # type: ignore[arg-type]
    settings = {"value_deserializer": int, "key_deserializer": bytes.decode}
    async with consumer_of(node, "t", **settings) as consumer:
        found = (await consumer.getmany(timeout_ms=1000))[at("t-0")]
        assert [(message.key, message.value) for message in found] == [("k", 1), (None, None)]


@on_broker()
async def test_a_deserializer_that_fails_names_the_record_and_the_program_may_seek_past_it(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", b"1", b"two", b"3")
    async with consumer_of(node, "t", value_deserializer=int) as consumer:
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [1]
        for _ in range(2):
            with pytest.raises(DeserializerFailed, match=r"t-0, offset 1") as caught:
                await consumer.getmany(timeout_ms=1000)
            assert isinstance(caught.value.__cause__, ValueError)
        consumer.seek(at("t-0"), caught.value.offset + 1)
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [3]
