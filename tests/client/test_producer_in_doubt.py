"""Batches whose fate nobody knows: an answer was lost, and the request itself may still be on its way.

In the simulated world, so that requests come as late as they need to. Our broker alone, since only it runs there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client_world import ClientWorld
from semel.client.errors import AbortTransactionError, DeliveryTimedOut
from semel.client.producer.producer import Producer
from semel.sim.attack.fault_policy import Blow, Fault, Passing, ScriptedFaults

TOPIC = "topic"


class Overtaken:
    """The first produce after a second is kept back for three; others are refused until it has run out of time; and
    whatever is written under another name afterwards is kept back until the late one has come."""

    def __init__(self, world: ClientWorld) -> None:
        self._loop = world.loop
        self._passed = 0
        self._is_kept_back = False

    def blow_for(self, request: Passing) -> Blow | None:
        now_s = self._loop.time()
        if request.name != "Produce" or now_s < 1:
            return None
        if not self._is_kept_back:
            self._is_kept_back = True
            return Blow(Fault.DELAY_REQUEST, delay_s=3.0)
        if now_s < 3.5:
            return Blow(Fault.REFUSE)
        self._passed += 1
        return Blow(Fault.DELAY_REQUEST, delay_s=1.0) if self._passed == 2 else None


async def started(world: ClientWorld, **settings: Any) -> Producer:
    producer = Producer(
        host=world.host(),
        bootstrap_servers=world.address,
        linger_ms=0,
        request_timeout_ms=1_000,
        retry_backoff_ms=50,
        retry_backoff_max_ms=50,
        **{"delivery_timeout_ms": 2_500, **settings},
    )
    await producer.start()
    return producer


def values(records: list[Any]) -> list[bytes]:
    return [record.value for record in records]


def test_a_batch_in_doubt_is_not_sent_under_another_name() -> None:
    """Two batches are kept back on a connection that was given up. The first one expires, and the second is called out
    of order: sent again under the next epoch it would be written twice, when the two arrive after all."""
    world = ClientWorld(1)
    world.faults = Overtaken(world)

    async def scenario(world: ClientWorld) -> None:
        await world.create_topic(TOPIC, 1)
        producer = await started(world)
        await producer.send_and_wait(TOPIC, b"before")
        await asyncio.sleep(1 - world.loop.time())
        first = await producer.send(TOPIC, b"first")
        await asyncio.sleep(0.8)
        second = await producer.send(TOPIC, b"second")
        with pytest.raises(DeliveryTimedOut):
            await producer.flush()
        await asyncio.sleep(10)
        await producer.send_and_wait(TOPIC, b"after")
        await producer.close()
        assert values(await world.logged(TOPIC, 0)) == [b"before", b"first", b"second", b"after"]
        assert isinstance(first.exception(), DeliveryTimedOut)
        assert isinstance(second.exception(), AbortTransactionError)
        assert "may have been written" in str(first.exception())
        assert "may have been written" in str(second.exception())

    world.run(scenario)


def test_what_comes_late_is_refused_once_the_next_epoch_has_written() -> None:
    world = ClientWorld(1)
    world.faults = Overtaken(world)

    async def scenario(world: ClientWorld) -> None:
        await world.create_topic(TOPIC, 1)
        producer = await started(world)
        await producer.send_and_wait(TOPIC, b"before")
        await asyncio.sleep(1 - world.loop.time())
        first = await producer.send(TOPIC, b"first")
        with pytest.raises(DeliveryTimedOut):
            await producer.flush()
        assert isinstance(first.exception(), DeliveryTimedOut)
        assert (await producer.send_and_wait(TOPIC, b"after")).offset == 1
        await asyncio.sleep(10)
        await producer.close()
        assert values(await world.logged(TOPIC, 0)) == [b"before", b"after"]

    world.run(scenario)


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.CUT_IN_ANSWER, Fault.SWALLOW_ANSWERS, Fault.DENY])
def test_a_written_batch_whose_answer_is_lost_is_acknowledged_where_it_was_written(fault: Fault) -> None:
    world = ClientWorld(1, ScriptedFaults({("Produce", 2): Blow(fault)}))

    async def scenario(world: ClientWorld) -> None:
        await world.create_topic(TOPIC, 1)
        producer = await started(world, delivery_timeout_ms=60_000)
        sent = [await producer.send(TOPIC, b"%d" % number) for number in range(3)]
        await producer.flush()
        assert [delivery.result().offset for delivery in sent] == [0, 1, 2]
        await producer.close()
        assert values(await world.logged(TOPIC, 0)) == [b"0", b"1", b"2"]

    world.run(scenario)


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.CUT_BEFORE, Fault.SWALLOW_REQUESTS, Fault.DUPLICATE])
def test_five_in_flight_stay_in_order_whatever_becomes_of_the_first(fault: Fault) -> None:
    world = ClientWorld(1, ScriptedFaults({("Produce", 2): Blow(fault)}))

    async def scenario(world: ClientWorld) -> None:
        await world.create_topic(TOPIC, 1)
        producer = await started(world, delivery_timeout_ms=60_000, batch_size=1)
        await producer.send_and_wait(TOPIC, b"0")
        sent = [await producer.send(TOPIC, b"%d" % number) for number in range(1, 6)]
        await producer.flush()
        assert [delivery.result().offset for delivery in sent] == [1, 2, 3, 4, 5]
        await producer.close()
        assert values(await world.logged(TOPIC, 0)) == [b"0", b"1", b"2", b"3", b"4", b"5"]

    world.run(scenario)
