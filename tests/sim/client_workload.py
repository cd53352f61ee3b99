"""What clients do in the simulated world while faults happen to them, and what must hold afterwards.

Everything about a run is drawn from its seed: settings, pauses, faults, deaths of the broker. Values are unique, so
that whatever is there twice is seen. Here is what all workloads share, and the first of them: one idempotent producer.
Impatient ones give up on records early; all others must get everything through.
"""

from __future__ import annotations

import asyncio
import random as random_module
from dataclasses import dataclass
from typing import Any

from client_wire import ProducerWitness

from client_world import ClientWorld
from semel.client.errors import SemelError
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.sim.attack.fault_policy import drawn_faults

TOPIC = "topic"
FAULTS_MAX = 30
WRITING = (
    "Produce",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "JoinGroup",
    "SyncGroup",
    "ConsumerGroupHeartbeat",
)
"""Half of the runs keep their faults for these: there are many more requests that only ask."""
PATIENCE_MS = 3_600_000
CALM_S = 50.0
"""Longer than any request is kept back: afterwards nothing moves any more."""


def new_world(seed: int, *, generation: int = 2, **settings: str) -> ClientWorld:
    world = ClientWorld(seed, generation=generation, settings=settings)
    random = world.random("faults")
    only = WRITING if random.random() < 0.5 else ()
    world.faults = faults = drawn_faults(random, most=FAULTS_MAX, only=only)
    world.calm = faults.calm
    return world


def drawn_settings(random: random_module.Random, *, impatient: bool = False) -> dict[str, Any]:
    request_timeout_ms = random.choice([300, 2_000, 10_000])
    linger_ms = random.choice([0, 1, 5, 50])
    first_backoff_ms = random.choice([10, 100])
    return {
        "batch_size": random.choice([100, 200, 500, 16_384]),
        "linger_ms": linger_ms,
        "max_in_flight_requests_per_connection": random.choice([1, 2, 5, 5, 5]),
        "request_timeout_ms": request_timeout_ms,
        "delivery_timeout_ms": request_timeout_ms + linger_ms + random.randint(0, 3_000) if impatient else PATIENCE_MS,
        "retry_backoff_ms": first_backoff_ms,
        "compression_type": random.choice(["none", "none", "gzip", "snappy", "lz4", "zstd"]),
        "bootstrap_timeout_ms": PATIENCE_MS,
        "max_block_ms": PATIENCE_MS,
    }


def broker_deaths(world: ClientWorld, random: random_module.Random, within_s: float) -> asyncio.Task[None] | None:
    """In some runs the broker is killed, or loses power, once or twice."""
    count = random.choice([0, 0, 0, 1, 2])
    if count == 0:
        return None

    async def die() -> None:
        for _ in range(count):
            await asyncio.sleep(random.uniform(0, within_s))
            await world.lose_broker(power=random.random() < 0.5, down_s=random.choice([0.0, 0.5, 5.0]))

    return asyncio.get_running_loop().create_task(die())


async def pause(random: random_module.Random) -> None:
    roll = random.random()
    if roll < 0.1:
        await asyncio.sleep(random.uniform(0, 0.05))
    elif roll < 0.12:
        await asyncio.sleep(random.uniform(0, 5))


def number_of(value: bytes | None) -> int:
    assert value is not None
    return int(value.split()[0])


# -- one idempotent producer


@dataclass
class Sent:
    number: int
    key: bytes | None
    value: bytes
    delivery: Delivery | None = None


async def flushed(producer: Producer, *, impatient: bool) -> None:
    """Who is impatient lets records fail, and looks at their deliveries later."""
    try:
        await producer.flush()
    except SemelError:
        if not impatient:
            raise


async def idempotent_run(world: ClientWorld, *, impatient: bool) -> None:
    random = world.random("workload")
    partitions = random.randint(1, 3)
    keys = [None, *(b"key %d" % number for number in range(random.randint(0, 4)))]
    await world.create_topic(TOPIC, partitions)
    settings = drawn_settings(random, impatient=impatient)
    world.note(f"settings: {settings}")
    world.proxy.witness = witness = ProducerWitness(settings["max_in_flight_requests_per_connection"])
    producer = Producer(host=world.host("producer"), bootstrap_servers=world.address, **settings)
    await producer.start()
    deaths = broker_deaths(world, random, 3.0)
    history: list[Sent] = []
    for number in range(random.randint(5, 80)):
        sent = Sent(number, random.choice(keys), b"%d %s" % (number, b"." * random.choice([1, 20, 90])))
        history.append(sent)
        partition = random.randrange(partitions) if random.random() < 0.5 else None
        try:
            sent.delivery = await producer.send(TOPIC, sent.value, key=sent.key, partition=partition)
        except SemelError:
            if not impatient:
                raise
        await pause(random)
        if random.random() < 0.03:
            await flushed(producer, impatient=impatient)
    await flushed(producer, impatient=impatient)
    if deaths is not None:
        await deaths
    world.calm()
    await asyncio.sleep(CALM_S)
    for partition in range(partitions):  # whatever has happened, it goes on
        value = b"%d" % len(history)
        history.append(Sent(len(history), None, value, await producer.send(TOPIC, value, partition=partition)))
    await producer.close()
    assert all(sent.delivery is not None and sent.delivery.exception() is None for sent in history[-partitions:])
    witness.check()
    await judge_idempotent(world, history, partitions, impatient=impatient)


async def judge_idempotent(world: ClientWorld, history: list[Sent], partitions: int, *, impatient: bool) -> None:
    """What was acknowledged is there, where it was said to be; nothing is there twice; the order is that of sending."""
    found: dict[int, tuple[int, int]] = {}
    for partition in range(partitions):
        last = -1
        for record in await world.logged(TOPIC, partition):
            number = number_of(record.value)
            assert number not in found, f"{number} is there twice: at {found[number]} and {(partition, record.offset)}"
            assert number > last, f"in partition {partition} {number} stands after {last}"
            sent = history[number]
            assert (record.key, record.value) == (sent.key, sent.value), f"{number} is damaged"
            found[number] = (partition, record.offset)
            last = number
    for sent in history:
        if sent.delivery is None:
            assert sent.number not in found, f"{sent.number} was refused and is there"
            continue
        assert sent.delivery.done(), f"{sent.number} is not decided after a flush"
        error = sent.delivery.exception()
        if error is None:
            metadata = sent.delivery.result()
            assert found.get(sent.number) == (metadata.partition, metadata.offset), (
                f"{sent.number} was acknowledged for {metadata.partition} at {metadata.offset}, "
                f"but is at {found.get(sent.number)}"
            )
        else:
            assert impatient, f"{sent.number} was lost: {error!r}"
