"""Exactly once over real sockets: the fault proxy stands before a real broker, which in one test dies again and again.

The simulated world runs hundreds of seeds of this; here a few show that nothing depends on the simulation.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from proxied_broker import behind, committed_values, connect

from real_broker import Brokers, RealBroker
from semel.client.consumer.consumer import Consumer
from semel.client.errors import AbortTransactionError, RestartProducerError
from semel.client.producer.producer import Producer
from semel.sim.attack.fault_answers import FIRST_GENERATION_HIDDEN, FIRST_GENERATION_LIMITS
from semel.sim.attack.fault_policy import Fault, SeededFaults

SEEDS = range(int(os.environ.get("SEMEL_REAL_SEEDS", "5")))
PARTITIONS = 3
RECORDS = 300
KILLS = 3
INPUTS = 60
LIVES = 3
# A request that is passed on long after its client has gone on is for our own broker: Kafka's first generation of
# transactions is not safe from it.
KINDS = [fault for fault in Fault if fault is not Fault.LATE_REQUEST]
SETTINGS_OF_CLIENTS: dict[str, Any] = {
    "batch_size": 300,
    "linger_ms": 1,
    "request_timeout_ms": 1_000,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "bootstrap_timeout_ms": 60_000,
}


def faults(seed: int) -> SeededFaults:
    chosen = random.Random(seed)
    return SeededFaults(chosen, dict.fromkeys(KINDS, 0.01), most=15, delay_s=(0.0, 0.3))


async def send_all(producer: Producer, topic: str, chosen: random.Random) -> list[tuple[int, int, int]]:
    """(partition, offset, number) of each record, as acknowledged."""
    deliveries = []
    for number in range(RECORDS):
        deliveries.append(await producer.send(topic, b"%d" % number, partition=chosen.randrange(PARTITIONS)))
        if chosen.random() < 0.2:
            await asyncio.sleep(chosen.uniform(0, 0.005))
    await producer.flush()
    results = [await delivery for delivery in deliveries]
    return [(result.partition, result.offset, number) for number, result in enumerate(results)]


def judge(address: str, topic: str, acknowledged: list[tuple[int, int, int]]) -> None:
    """Each record is there once, where it was said to be, in the order in which it was sent."""
    with connect(address) as client:
        found = [
            (partition, record.offset, int(record.value or b""))
            for partition in range(PARTITIONS)
            for record in client.read_log(topic, partition)
        ]
    assert sorted(found) == sorted(acknowledged)
    numbers = {partition: [number for part, _, number in found if part == partition] for partition in range(PARTITIONS)}
    assert all(row == sorted(row) for row in numbers.values())


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_record_is_there_once_and_in_order_in_spite_of_the_network(
    address: str, topic: str, seed: int
) -> None:
    async with (
        behind(address, faults(seed)) as door,
        Producer(bootstrap_servers=door, **SETTINGS_OF_CLIENTS) as producer,
    ):
        acknowledged = await send_all(producer, topic, random.Random(seed))
    judge(address, topic, acknowledged)


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_record_is_there_once_and_in_order_although_the_broker_is_killed(
    brokers: Brokers, seed: int
) -> None:
    """Only our broker can be killed and be back at once; Kafka's restarts take too long."""
    broker = brokers.start(flush=("os", "fsync")[seed % 2], settings={"num.partitions": str(PARTITIONS)})
    chosen = random.Random(seed)
    async with (
        behind(broker.address, faults(seed)) as door,
        Producer(bootstrap_servers=door, **SETTINGS_OF_CLIENTS) as producer,
    ):
        deaths = asyncio.create_task(_kill_again_and_again(broker, chosen))
        acknowledged = await send_all(producer, "topic", random.Random(seed))
        await deaths
    judge(broker.address, "topic", acknowledged)


async def _kill_again_and_again(broker: RealBroker, chosen: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(chosen.uniform(0, 0.3))
        broker.kill()
        await asyncio.to_thread(broker.start)


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_transaction_is_there_as_a_whole_or_not_at_all(
    address: str, topic: str, unique: Callable[[str], str], seed: int, generation: int
) -> None:
    chosen = random.Random(seed)
    limits: dict[str, Any] = (
        {"version_limits": FIRST_GENERATION_LIMITS, "hidden_features": FIRST_GENERATION_HIDDEN}
        if generation == 1
        else {}
    )
    transactional_id = unique("id")
    expected: list[tuple[int, int]] = []
    async with behind(address, faults(seed), **limits) as door:

        def new_producer() -> Producer:
            return Producer(bootstrap_servers=door, transactional_id=transactional_id, **SETTINGS_OF_CLIENTS)

        async with new_producer() as producer:
            await producer.init_transactions()
            for number in range(12):
                records = [(chosen.randrange(PARTITIONS), number * 100 + index) for index in range(10)]
                if await _one_transaction(producer, topic, records, wants_commit=chosen.random() < 0.6):
                    expected += records
    for partition in range(PARTITIONS):
        visible = [int(value or b"") for value in committed_values(address, topic, partition)]
        assert visible == [number for part, number in expected if part == partition]


async def _one_transaction(
    producer: Producer, topic: str, records: list[tuple[int, int]], *, wants_commit: bool
) -> bool:
    """Whether it was committed. No fault of this test fences a producer, so it lives as long as the test."""
    await producer.begin()
    try:
        for partition, number in records:
            await producer.send(topic, b"%d" % number, partition=partition)
        if wants_commit:
            await producer.commit()
            return True
    except AbortTransactionError:
        pass
    except RestartProducerError as error:
        raise AssertionError(f"nobody has taken this producer's place: {error!r}") from error
    await producer.abort()
    return False


@pytest.mark.parametrize("seed", SEEDS[:2])
async def test_what_is_read_is_written_once_although_its_workers_die(
    address: str, topic: str, unique: Callable[[str], str], seed: int
) -> None:
    source, group, transactional_id = unique("source"), unique("group"), unique("id")
    async with Producer(bootstrap_servers=address) as filler:
        for number in range(INPUTS):
            await filler.send(source, b"%d" % number)
    async with behind(address, faults(seed)) as door:
        for life in range(LIVES):
            producer = Producer(bootstrap_servers=door, transactional_id=transactional_id, **SETTINGS_OF_CLIENTS)
            await producer.start()
            async with Consumer(
                source,
                bootstrap_servers=door,
                group_id=group,
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                max_poll_records=7,
                request_timeout_ms=2_000,
                max_poll_interval_ms=5_000,  # so long, and some more, is an answer to JoinGroup waited for
                bootstrap_timeout_ms=60_000,
            ) as consumer:
                await _work(producer, consumer, topic, None if life == LIVES - 1 else 2)
            # All but the last leave a transaction open: the next one begins with its end.
            await producer.close(timeout_s=10 if life == LIVES - 1 else 0)
    written = [int(value or b"") for value in committed_values(address, topic)]
    assert written == list(range(INPUTS))


async def _work(producer: Producer, consumer: Consumer, topic: str, commits_left: int | None) -> None:
    """Until all is read; or until so many commits, and then in the middle of a transaction."""
    await producer.init_transactions()
    while True:
        found = await consumer.getmany(timeout_ms=5_000)
        messages = [message for part in found.values() for message in part]
        await producer.begin()
        try:
            for message in messages:
                await producer.send(topic, message.value, partition=0)
            if commits_left == 0:
                return
            positions = {partition: part[-1].offset + 1 for partition, part in found.items()}
            await producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            await producer.commit()
            commits_left = None if commits_left is None else commits_left - 1
        except AbortTransactionError:
            await producer.abort()
            for partition in consumer.assignment():
                consumer.seek(partition, await consumer.committed(partition) or 0)
            continue
        if messages and messages[-1].offset == INPUTS - 1:
            return
