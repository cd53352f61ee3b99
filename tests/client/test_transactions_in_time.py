"""Transactions and time, in the simulated world: what takes too long, what comes too late, what is forgotten.

Our broker alone, since only it runs there; it tells a fenced producer, a timed-out transaction and an expired id apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from client_world import ClientWorld
from semel.client.errors import (
    AbortTransactionError,
    ProducerFenced,
    ProducerFencedOrTimedOut,
    RestartProducerError,
    TransactionalIdExpired,
    TransactionTimedOut,
)
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.sim.attack.fault_policy import Blow, Fault, ScriptedFaults

TOPIC = "topic"
INPUT = "input"
GROUP = "group"
ID = "payments"
DAY_MS = 24 * 3600 * 1000

generations = pytest.mark.parametrize("generation", [1, 2])


def in_a_world(
    scenario: Callable[[ClientWorld], Coroutine[Any, Any, None]],
    script: dict[tuple[str, int], Blow] | None = None,
    *,
    generation: int = 2,
    **settings: str,
) -> None:
    async def whole(world: ClientWorld) -> None:
        await world.create_topic(TOPIC, 2)
        await world.create_topic(INPUT, 1)
        await scenario(world)

    given = {name.replace("_", "."): value for name, value in settings.items()}
    ClientWorld(1, ScriptedFaults(script or {}), generation=generation, settings=given).run(whole)


async def started(world: ClientWorld, **settings: Any) -> Producer:
    producer = Producer(
        host=world.host(),
        bootstrap_servers=world.address,
        **{"transactional_id": ID, "request_timeout_ms": 2_000, **settings},
    )
    await producer.start()
    await producer.init_transactions()
    return producer


async def visible(world: ClientWorld, partition: int = 0) -> list[bytes | None]:
    """After a moment for the markers."""
    await asyncio.sleep(1)
    assert world.open_transactions(TOPIC, partition) == 0, "nothing hangs"
    return [record.value for record in await world.logged(TOPIC, partition) if record.is_committed]


# -- too long


def test_a_transaction_that_took_too_long_is_aborted_and_its_producer_goes_on() -> None:
    async def scenario(world: ClientWorld) -> None:
        producer = await started(world, transaction_timeout_ms=5_000)
        await producer.begin()
        await producer.send_and_wait(TOPIC, b"too slow", partition=0)
        await asyncio.sleep(30)
        with pytest.raises(TransactionTimedOut) as refused:
            await producer.commit()
        assert "transaction.timeout.ms" in str(refused.value)
        await producer.abort()
        async with producer.transaction():
            await producer.send(TOPIC, b"in time", partition=0)
        await producer.close()
        assert await visible(world) == [b"in time"]

    in_a_world(scenario)


def test_in_the_first_generation_too_a_timed_out_commit_is_told_from_a_fenced_one() -> None:
    async def scenario(world: ClientWorld) -> None:
        producer = await started(world, transaction_timeout_ms=5_000)
        await producer.begin()
        await producer.send_and_wait(TOPIC, b"too slow", partition=0)
        await asyncio.sleep(30)
        with pytest.raises(TransactionTimedOut):
            await producer.commit()
        await producer.abort()
        async with producer.transaction():
            await producer.send(TOPIC, b"in time", partition=0)
        await producer.close()
        assert await visible(world) == [b"in time"]

    in_a_world(scenario, generation=1)


@generations
def test_a_write_into_a_transaction_that_took_too_long_is_refused(generation: int) -> None:
    async def scenario(world: ClientWorld) -> None:
        producer = await started(world, transaction_timeout_ms=5_000)
        await producer.begin()
        await producer.send_and_wait(TOPIC, b"begun", partition=0)
        await asyncio.sleep(30)
        delivery = await producer.send(TOPIC, b"too late", partition=0)
        with pytest.raises((TransactionTimedOut, ProducerFencedOrTimedOut)):
            await delivery
        await producer.close()
        assert await visible(world) == []

    in_a_world(scenario, generation=generation)


@generations
def test_an_abort_that_comes_after_the_brokers_own_leaves_a_producer_that_goes_on(generation: int) -> None:
    async def scenario(world: ClientWorld) -> None:
        producer = await started(world, transaction_timeout_ms=5_000)
        await producer.begin()
        await producer.send_and_wait(TOPIC, b"too slow", partition=0)
        await asyncio.sleep(30)
        await producer.abort()
        async with producer.transaction():
            await producer.send(TOPIC, b"in time", partition=0)
        await producer.close()
        assert await visible(world) == [b"in time"]

    in_a_world(scenario, generation=generation)


# -- replaced


@generations
def test_a_producer_that_was_replaced_is_told_so_and_not_that_it_was_slow(generation: int) -> None:
    async def scenario(world: ClientWorld) -> None:
        old = await started(world)
        await old.begin()
        await old.send_and_wait(TOPIC, b"left open", partition=0)
        new = await started(world)
        with pytest.raises(ProducerFenced) as refused:
            await old.commit()
        assert type(refused.value) is ProducerFenced
        with pytest.raises(ProducerFenced):
            await old.begin()
        async with new.transaction():
            await new.send(TOPIC, b"goes on", partition=0)
        await old.close(timeout_s=1)
        await new.close()
        assert await visible(world) == [b"goes on"]

    in_a_world(scenario, generation=generation)


@generations
def test_what_a_producer_left_open_is_aborted_by_its_successor(generation: int) -> None:
    """The articles: an instance of the same id finishes what the one before left."""

    async def scenario(world: ClientWorld) -> None:
        first = await started(world)
        await first.begin()
        await first.send_and_wait(TOPIC, b"left open", partition=0)
        assert world.open_transactions(TOPIC, 0) == 1
        successor = await started(world)
        assert await visible(world) == []
        await first.close(timeout_s=1)
        await successor.close()

    in_a_world(scenario, generation=generation)


# -- forgotten


@generations
def test_an_expired_transactional_id_is_an_error_of_its_own(generation: int) -> None:
    async def scenario(world: ClientWorld) -> None:
        producer = await started(world)
        async with producer.transaction():
            await producer.send(TOPIC, b"long ago", partition=0)
        await asyncio.sleep(2 * 3600)
        await producer.begin()
        with pytest.raises(TransactionalIdExpired):
            await (await producer.send(TOPIC, b"after a long pause", partition=0))
        with pytest.raises(RestartProducerError):
            await producer.commit()
        await producer.close(timeout_s=1)
        again = await started(world)
        async with again.transaction():
            await again.send(TOPIC, b"back", partition=0)
        await again.close()
        assert await visible(world) == [b"long ago", b"back"]

    in_a_world(
        scenario,
        generation=generation,
        transactional_id_expiration_ms=str(3600 * 1000),
        transaction_remove_expired_transaction_cleanup_interval_ms="60000",
    )


# -- too late, and lost


FIRST_ONLY = {"AddPartitionsToTxn", "AddOffsetsToTxn"}
REQUESTS = ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", "EndTxn"]


@generations
@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.SWALLOW_ANSWERS], ids=lambda f: f.name)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_transaction_survives_the_loss_of_any_request_or_answer(
    request_name: str, fault: Fault, generation: int
) -> None:
    if generation == 2 and request_name in FIRST_ONLY:
        pytest.skip("the second generation has no need of it")

    async def scenario(world: ClientWorld) -> None:
        producer = await started(world)
        for number in range(2):
            await producer.begin()
            for partition in (0, 1):
                await producer.send(TOPIC, b"%d" % number, partition=partition)
            await producer.send_offsets_to_transaction({TopicPartition(INPUT, 0): number + 1}, GROUP)
            await producer.commit()
        await producer.begin()
        await producer.send_and_wait(TOPIC, b"never", partition=0)
        await producer.abort()
        await producer.close()
        assert world.faults.seen[request_name] >= 2  # type: ignore[attr-defined]
        assert await visible(world) == [b"0", b"1"]
        assert await visible(world, 1) == [b"0", b"1"]

    in_a_world(scenario, {(request_name, 1): Blow(fault)}, generation=generation)


@generations
def test_a_transaction_whose_record_was_not_delivered_cannot_be_committed(generation: int) -> None:
    script = {("Produce", number): Blow(Fault.REFUSE) for number in range(2, 200)}

    async def scenario(world: ClientWorld) -> None:
        producer = await started(world, delivery_timeout_ms=2_100, retry_backoff_max_ms=100)
        await producer.begin()
        await producer.send_and_wait(TOPIC, b"delivered", partition=0)
        lost = await producer.send(TOPIC, b"lost", partition=0)
        with pytest.raises(AbortTransactionError):
            await producer.commit()
        assert lost.exception() is not None
        await producer.abort()
        await producer.close()
        assert await visible(world) == []

    in_a_world(scenario, script, generation=generation)
