"""Partitions that come and go, with our whole broker: what is committed before, what listeners may do, slow loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from consumer_world import Node, at, consumer_of, on_broker, produce, values_of

from semel.client.consumer.consumer import Consumer
from semel.client.errors import IllegalState


async def topic_with(node: Node, *values: bytes, name: str = "t", partitions: int = 1) -> None:
    client = await node.client()
    assert (await client.create_topic(name, partitions)).error_code == 0
    client.close()
    if values:
        await produce(node, f"{name}-0", *values)


async def committed(node: Node, group: str = "g", place: str = "t-0") -> int | None:
    async with consumer_of(node, group_id=group) as other:
        return await other.committed(at(place))


class Notes:
    """A listener that writes down what it is told; `on_partitions_assigned` is async, the other is not."""

    def __init__(self, consumer: Consumer | None = None) -> None:
        self.told: list[tuple[str, list[str]]] = []
        self.consumer = consumer
        self.committed: list[int | None] = []

    def on_partitions_revoked(self, partitions: set[Any]) -> None:
        self.told.append(("revoked", sorted(map(str, partitions))))

    async def on_partitions_assigned(self, partitions: set[Any]) -> None:
        self.told.append(("assigned", sorted(map(str, partitions))))
        if self.consumer is not None:
            for partition in partitions:
                self.committed.append(await self.consumer.position(partition))


@on_broker()
async def test_a_revoked_partition_is_committed_before_the_next_owner_reads_it(node: Node) -> None:
    await topic_with(node, b"a0", b"a1", partitions=2)
    await produce(node, "t-1", b"b0", b"b1")
    notes = Notes()
    settings = {"group_id": "g", "auto_commit_interval_ms": 3_600_000, "heartbeat_interval_ms": 100}
    async with consumer_of(node, **settings) as first, consumer_of(node, **settings) as second:
        first.subscribe(["t"], listener=notes)
        got = []
        while len(got) < 4:
            got += values_of(await first.getmany(timeout_ms=1000))
        assert notes.told == [("assigned", ["t-0", "t-1"])]
        second.subscribe(["t"])

        async def poll(consumer: Consumer) -> list[Any]:
            found = []
            for _ in range(20):
                found += values_of(await consumer.getmany(timeout_ms=100))
            return found

        again = await asyncio.gather(poll(first), poll(second))
        assert again == [[], []], "what was read before the rebalance was committed by it"
        assert [len(first.assignment()), len(second.assignment())] == [1, 1]
        assert notes.told[1] == ("revoked", ["t-0", "t-1"])
        assert notes.told[2][0] == "assigned"
        assert len(notes.told[2][1]) == 1


@on_broker()
async def test_a_listener_may_ask_for_positions_and_seek(node: Node) -> None:
    await topic_with(node, *[b"%d" % number for number in range(5)])

    class Seeks(Notes):
        async def on_partitions_assigned(self, partitions: set[Any]) -> None:
            await super().on_partitions_assigned(partitions)
            assert self.consumer is not None
            self.consumer.seek(at("t-0"), 3)

    async with consumer_of(node, group_id="g") as consumer:
        notes = Seeks(consumer)
        consumer.subscribe(["t"], listener=notes)
        assert (await consumer.getone()).value == b"3"
        assert notes.committed == [0]


@on_broker()
async def test_a_listener_that_fails_is_told_by_poll_and_the_consumer_goes_on(node: Node) -> None:
    await topic_with(node, b"0")

    class Fails:
        def on_partitions_assigned(self, partitions: set[Any]) -> None:
            raise LookupError("the listener's own")

    async with consumer_of(node, group_id="g") as consumer:
        consumer.subscribe(["t"], listener=Fails())
        with pytest.raises(LookupError, match="own"):
            await consumer.getone()
        assert (await consumer.getone()).value == b"0"


@on_broker()
async def test_a_listener_cannot_poll(node: Node) -> None:
    await topic_with(node, b"0")

    class Polls:
        def __init__(self, consumer: Consumer) -> None:
            self.consumer = consumer

        async def on_partitions_assigned(self, partitions: set[Any]) -> None:
            await self.consumer.getmany(timeout_ms=10)

    async with consumer_of(node, group_id="g") as consumer:
        consumer.subscribe(["t"], listener=Polls(consumer))
        with pytest.raises(IllegalState, match="listener"):
            await consumer.getmany(timeout_ms=1000)


@pytest.mark.parametrize("call", ["close", "unsubscribe"])
@on_broker()
async def test_a_listener_cannot_end_the_consumer(node: Node, call: str) -> None:
    await topic_with(node, b"0")

    class Ends:
        def __init__(self, consumer: Consumer) -> None:
            self.consumer = consumer

        async def on_partitions_assigned(self, partitions: set[Any]) -> None:
            await getattr(self.consumer, call)()

    async with consumer_of(node, group_id="g") as consumer:
        consumer.subscribe(["t"], listener=Ends(consumer))
        with pytest.raises(IllegalState, match=f"cannot {call}"):
            await consumer.getmany(timeout_ms=1000)
        assert (await consumer.getone()).value == b"0"


@on_broker()
async def test_a_slow_loop_is_no_dead_program(node: Node) -> None:
    """Each message asked for counts as a poll, though a hundred of them are decoded already."""
    await topic_with(node, *[b"%d" % number for number in range(100)])
    notes = Notes()
    settings = {"group_id": "g", "max_poll_interval_ms": 3000, "enable_auto_commit": False}
    async with consumer_of(node, "t", listener=notes, **settings) as consumer:
        async for message in consumer:
            await asyncio.sleep(1)
            if message.offset == 20:
                break
        await consumer.commit()
        assert notes.told == [("assigned", ["t-0"])]


@on_broker()
async def test_unsubscribe_commits_leaves_and_tells_the_listener(node: Node) -> None:
    await topic_with(node, b"0", b"1")
    notes = Notes()
    async with consumer_of(node, group_id="g") as consumer:
        consumer.subscribe(["t"], listener=notes)
        await consumer.getmany(timeout_ms=1000)
        await consumer.unsubscribe()
        assert notes.told == [("assigned", ["t-0"]), ("revoked", ["t-0"])]
        assert await committed(node) == 2
        assert consumer.assignment() == frozenset()
        consumer.subscribe(["t"], listener=notes)
        assert await consumer.getmany(timeout_ms=1000) == {}
        assert await consumer.position(at("t-0")) == 2


@on_broker()
async def test_a_loop_notices_a_rebalance_between_two_messages(node: Node) -> None:
    """It does not wait until the messages of a batch are all handed out."""
    await topic_with(node, *[b"%d" % number for number in range(1000)], partitions=2)
    settings = {"group_id": "g", "heartbeat_interval_ms": 100, "session_timeout_ms": 6000}
    async with consumer_of(node, "t", **settings) as first, consumer_of(node, "t", **settings) as second:
        seen = []

        async def slow_loop() -> None:
            async for message in first:
                seen.append(message.offset)
                await asyncio.sleep(0.5)

        looping = asyncio.ensure_future(slow_loop())
        await asyncio.sleep(2)
        for _ in range(30):
            await second.getmany(timeout_ms=100, max_records=1)
        assert len(first.assignment()) == 1
        assert len(second.assignment()) == 1
        looping.cancel()
        await asyncio.gather(looping, return_exceptions=True)
        assert len(seen) < 100
