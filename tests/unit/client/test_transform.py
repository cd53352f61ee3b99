"""`semel.transform` with our whole broker in virtual time: what is done when, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from consumer_world import BROKER, PORT, Node, at, consumer_of, on_broker, produce, values_of
from transaction_harness import with_transactions

from semel.client.consumer.batches import Batch, BatchReader
from semel.client.consumer.consumer import Consumer
from semel.client.errors import (
    AbortTransactionError,
    BadSetting,
    CommitFailed,
    IllegalState,
    ProducerFenced,
    RecordTooLarge,
    TimedOut,
    TransactionTimedOut,
)
from semel.client.producer.producer import Producer
from semel.client.transform import Guarantee, Transform, transform

SOURCE = at("source-0")
WORDS: tuple[Guarantee, ...] = ("exactly_once", "at_least_once", "at_most_once")
EACH = pytest.mark.parametrize("word", WORDS)
_names = iter(range(1, 1 << 30))


def reader(node: Node, **settings: Any) -> Consumer:
    given: dict[str, Any] = {"group_id": "g", "isolation_level": "read_committed", **settings}
    return consumer_of(node, "source", **given)


def writer(node: Node, word: Guarantee = "exactly_once", **settings: Any) -> Producer:
    given = {"transactional_id": "t"} if word == "exactly_once" else {}
    host = node.world.host(f"writer{next(_names)}")
    return Producer(host=host, bootstrap_servers=f"{BROKER}:{PORT}", **{**given, **settings})


async def topics(node: Node, *values: bytes, **configs: str) -> None:
    client = await with_transactions(node)
    for name in ("source", "sink"):
        assert (await client.create_topic(name, 1, configs=configs if name == "sink" else {})).error_code == 0
    for value in values:
        await produce(node, "source-0", value)
    client.close()


async def copy(producer: Producer, batch: Batch) -> None:
    for message in batch:
        await producer.send("sink", message.value)


async def written(node: Node) -> list[bytes]:
    """What a reader of committed data finds."""
    async with consumer_of(node, "sink", isolation_level="read_committed") as consumer:
        found: list[bytes] = []
        while part := values_of(await consumer.getmany(timeout_ms=1000)):
            found += part
        return found


async def committed(node: Node) -> int | None:
    async with consumer_of(node, group_id="g") as consumer:
        return await consumer.committed(SOURCE)


async def copy_until(loop: Transform, producer: Producer, count: int) -> int:
    """Stops when so many messages were handed out; returns how many batches."""
    seen = batches = 0
    async for batch in loop:
        batches += 1
        await copy(producer, batch)
        seen += len(batch)
        if seen >= count:
            loop.stop()
    return batches


@EACH
@on_broker()
async def test_every_record_is_handed_out_and_its_offset_committed(node: Node, word: Guarantee) -> None:
    await topics(node, b"1", b"2", b"3")
    async with reader(node) as consumer, writer(node, word) as producer:
        assert await copy_until(transform(consumer, producer, word, max_records=2), producer, 3) == 2
        assert await consumer.committed(SOURCE) == 3
    assert await written(node) == [b"1", b"2", b"3"]


@EACH
@on_broker()
async def test_a_batch_that_the_loop_was_left_in_is_what_its_word_says(node: Node, word: Guarantee) -> None:
    """Left by an error, with what was sent for the batch on disk, by a program that then ends."""
    await topics(node, b"1")

    async def fail_in_the_body() -> None:
        async with reader(node) as consumer, writer(node, word) as producer:
            async for batch in transform(consumer, producer, word):
                await copy(producer, batch)
                await asyncio.sleep(1)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_in_the_body()
    assert await written(node) == ([] if word == "exactly_once" else [b"1"])
    assert await committed(node) == (1 if word == "at_most_once" else None)
    await produce(node, "source-0", b"2")
    async with reader(node) as consumer, writer(node, word) as producer:
        await copy_until(transform(consumer, producer, word), producer, 1 if word == "at_most_once" else 2)
    assert await written(node) == ([b"1", b"2"] if word != "at_least_once" else [b"1", b"1", b"2"])


@EACH
@on_broker()
async def test_a_loop_that_is_begun_again_repeats_what_it_was_left_in(node: Node, word: Guarantee) -> None:
    await topics(node, b"1", b"2")
    async with reader(node) as consumer, writer(node, word) as producer:
        loop = transform(consumer, producer, word, max_records=1)
        async for batch in loop:
            await copy(producer, batch)
            break
        assert await copy_until(loop, producer, 1 if word == "at_most_once" else 2) == (
            1 if word == "at_most_once" else 2
        )
    assert await written(node) == ([b"1", b"1", b"2"] if word == "at_least_once" else [b"1", b"2"])


@on_broker()
async def test_another_loop_with_the_same_clients_aborts_what_the_first_left_open(node: Node) -> None:
    await topics(node, b"1", b"2")
    async with reader(node) as consumer, writer(node) as producer:
        async for batch in transform(consumer, producer, max_records=1):
            await copy(producer, batch)
            break
        await copy_until(transform(consumer, producer, max_records=1), producer, 1)
    assert await written(node) == [b"2"], "the first loop is gone, and with it where its batch began"


@on_broker()
async def test_a_transaction_that_took_too_long_is_done_again_and_the_body_hears_nothing_of_it(node: Node) -> None:
    await topics(node, b"1", b"2")
    attempts: list[int] = []
    async with reader(node) as consumer, writer(node, transaction_timeout_ms=1000) as producer:
        loop = transform(consumer, producer)
        async for batch in loop:
            attempts.append(loop.attempt)
            deliveries = [await producer.send("sink", message.value) for message in batch]
            if loop.attempt == 1:
                await asyncio.sleep(30)  # the broker aborts it meanwhile
                await (
                    await producer.send("sink", b"fails", on_delivery=lambda delivery: delivery.exception())
                )._batch.wait()
                late = await producer.send("sink", b"too late")
                with pytest.raises((TransactionTimedOut, AbortTransactionError)):
                    await late
            else:
                assert [(await delivery).topic for delivery in deliveries] == ["sink"] * len(batch)
                loop.stop()
    assert attempts == [1, 2]
    assert await written(node) == [b"1", b"2"]
    assert await committed(node) == 2


@on_broker()
async def test_a_record_that_the_topic_refuses_is_raised_and_not_tried_for_ever(node: Node) -> None:
    await topics(node, b"x" * 500, **{"max.message.bytes": "300"})
    async with reader(node) as consumer, writer(node) as producer:
        with pytest.raises(RecordTooLarge):
            await copy_until(transform(consumer, producer), producer, 1)
        await producer.begin()  # nothing is open any more
        await producer.abort()
    assert await written(node) == []
    assert await committed(node) is None


@on_broker()
async def test_what_fails_again_and_again_is_raised(node: Node) -> None:
    await topics(node, b"1")
    tries = 0

    async def too_slow(loop: Transform, producer: Producer) -> None:
        nonlocal tries
        async for batch in loop:
            tries += 1
            await copy(producer, batch)
            await asyncio.sleep(30)

    async with reader(node) as consumer, writer(node, transaction_timeout_ms=1000) as producer:
        with pytest.raises(AbortTransactionError):
            await too_slow(transform(consumer, producer, max_attempts=3), producer)
    assert tries == 3
    assert await written(node) == []


@on_broker()
async def test_a_batch_whose_partition_others_have_by_now_is_left_to_them(node: Node) -> None:
    """It took longer than max_poll_interval_ms: the group went on without it."""
    await topics(node, b"1", b"2", b"3")
    slow: list[int] = []
    async with (
        reader(node, max_poll_interval_ms=1000, session_timeout_ms=6000) as one,
        writer(node, transactional_id="one") as first,
        writer(node, transactional_id="two") as second,
    ):
        loop = transform(one, first)

        async def work() -> None:
            async for batch in loop:
                slow.append(len(batch))
                await copy(first, batch)
                await asyncio.sleep(20)

        task = asyncio.create_task(work())
        await asyncio.sleep(5)
        async with reader(node) as other:
            await copy_until(transform(other, second), second, 3)
            await asyncio.sleep(30)
            assert slow == [3]
        loop.stop()
        await asyncio.wait_for(task, 60)
    assert await written(node) == [b"1", b"2", b"3"]


@on_broker()
async def test_a_copy_that_was_thought_dead_is_refused(node: Node) -> None:
    await topics(node, b"1")
    async with reader(node) as consumer, writer(node) as producer, writer(node) as newer:
        loop = transform(consumer, producer)
        batch = await anext(loop)
        await newer.init_transactions()
        await copy(producer, batch)
        with pytest.raises(ProducerFenced):
            await anext(loop)
    assert await written(node) == []
    assert await committed(node) is None


@EACH
@on_broker()
async def test_a_loop_that_waits_for_records_is_stopped_at_once(node: Node, word: Guarantee) -> None:
    await topics(node)
    async with reader(node) as consumer, writer(node, word) as producer:
        loop = transform(consumer, producer, word)
        task = asyncio.create_task(copy_until(loop, producer, 1))
        await asyncio.sleep(1)
        now_s = asyncio.get_running_loop().time()
        loop.stop()
        assert await task == 0
        assert asyncio.get_running_loop().time() == now_s


@on_broker()
async def test_at_least_once_commits_nothing_that_is_not_delivered(node: Node) -> None:
    await topics(node, b"1")
    async with reader(node) as consumer, writer(node, "at_least_once", linger_ms=20_000) as producer:
        loop = transform(consumer, producer, "at_least_once")
        await copy(producer, await anext(loop))
        waiting = asyncio.create_task(anext(loop))  # type: ignore[arg-type]
        await asyncio.sleep(1)
        assert await committed(node) == 1
        assert await written(node) == [b"1"]
        loop.stop()
        with pytest.raises(StopAsyncIteration):
            await waiting


@on_broker()
async def test_at_most_once_hands_out_nothing_that_may_not_be_committed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics(node, b"1")
    refusals = [CommitFailed("a rebalance"), TimedOut("no answer")]
    commit = BatchReader.commit

    async def refused(self: BatchReader, batch: Batch) -> None:
        if refusals:
            raise refusals.pop()
        await commit(self, batch)

    monkeypatch.setattr(BatchReader, "commit", refused)
    async with reader(node) as consumer:
        loop = transform(consumer, None, "at_most_once")
        assert values_of((await anext(loop)).partitions) == [b"1"]
        assert not refusals
        assert loop.attempt == 3
        assert await committed(node) == 1


@on_broker()
async def test_a_consumer_that_is_closed_ends_the_loop(node: Node) -> None:
    await topics(node)
    async with reader(node) as consumer:
        task = asyncio.create_task(copy_until(transform(consumer, None, "at_least_once"), None, 1))  # type: ignore[arg-type]
        await asyncio.sleep(1)
        await consumer.close()
        assert await task == 0


@on_broker()
async def test_offsets_are_committed_by_the_loop_alone(node: Node) -> None:
    await topics(node, b"1")
    async with reader(node, auto_commit_interval_ms=100) as consumer:
        loop = transform(consumer, None, "at_least_once")
        batch = await anext(loop)
        assert len(batch) == 1
        await asyncio.sleep(10)
        assert await consumer.committed(SOURCE) is None
        other = asyncio.create_task(anext(loop))  # type: ignore[arg-type]
        await asyncio.sleep(1)
        assert await consumer.committed(SOURCE) == 1
        with pytest.raises(IllegalState, match="one task"):
            await anext(loop)
        loop.stop()
        with pytest.raises(StopAsyncIteration):
            await other


@on_broker()
async def test_contradictions_are_refused_before_anything_is_read(node: Node) -> None:
    await topics(node)
    plain, transactional = writer(node, "at_least_once"), writer(node)
    group = reader(node)
    for consumer, producer, word, text in (
        (group, None, "exactly_once", "transactional_id"),
        (group, plain, "exactly_once", "transactional_id"),
        (group, transactional, "at_least_once", "contradicts at_least_once"),
        (group, transactional, "exactly-once", "allowed: exactly_once, at_least_once, at_most_once"),
        (consumer_of(node, "source"), transactional, "exactly_once", "group_id"),
        (consumer_of(node, "source", group_id="g"), transactional, "exactly_once", "read_committed"),
        (reader(node, enable_auto_commit=True), transactional, "exactly_once", "enable_auto_commit"),
    ):
        with pytest.raises(BadSetting, match=text):
            transform(consumer, producer, word)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="at least 1"):
        transform(group, transactional, max_attempts=0)
    with pytest.raises(IllegalState, match="not started"):
        await anext(transform(group, transactional))
