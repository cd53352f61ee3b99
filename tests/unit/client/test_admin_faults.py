"""The admin behind a network that cuts, delays and swallows, by seeds: every change is made once, and told as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from admin_world import admin_of

from client_world import ClientWorld
from semel.client.admin.admin import Admin
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import ConfigResource, NewTopic
from semel.client.errors import RetriableError, SemelError
from semel.client.metadata import TopicPartition
from semel.client.values import OffsetAndMetadata
from semel.sim.attack.fault_policy import Fault, SeededFaults
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop

SEEDS = 30
GROUP = "g"
# Not a request that arrives after its client has given up: no client could tell what it undoes.
KINDS = [
    Fault.CUT_BEFORE,
    Fault.CUT_IN_REQUEST,
    Fault.CUT_IN_ANSWER,
    Fault.CUT_AFTER,
    Fault.DELAY_REQUEST,
    Fault.DELAY_ANSWER,
    Fault.DRIP_REQUEST,
    Fault.DRIP_ANSWER,
    Fault.SWALLOW_REQUESTS,
    Fault.SWALLOW_ANSWERS,
]

T = TypeVar("T")


async def insisted(call: Callable[[], Awaitable[T]]) -> T | None:
    """Calls again when the client has given up. None: it had been done after all, and a second call says so."""
    gave_up = False
    while True:
        try:
            return await call()
        except SemelError as error:
            failed = list(error.errors.values()) if isinstance(error, AdminErrors) else [error]
            if all(isinstance(one, RetriableError) and one.code is None for one in failed):
                gave_up = True
            elif gave_up:
                return None
            else:
                raise


async def change_much(world: ClientWorld, admin: Admin) -> None:
    names = [f"t{number}" for number in range(4)]
    made = await insisted(lambda: admin.create_topics([NewTopic(name, 2, 1) for name in names]))
    if made is not None:
        assert sorted(made) == names
    await insisted(lambda: admin.create_partitions(dict.fromkeys(names[:2], 3)))
    resources = [ConfigResource.topic(name) for name in names]
    await insisted(lambda: admin.alter_configs(resources, set={"retention.ms": 77}))
    offsets = {TopicPartition(name, 1): number for number, name in enumerate(names)}
    await insisted(lambda: admin.alter_group_offsets(GROUP, offsets))
    await insisted(lambda: admin.delete_topics(names[3]))
    fenced = await insisted(lambda: admin.fence_producers(["p", "q"]))
    assert fenced is None or set(fenced) == {"p", "q"}
    assert isinstance(world.faults, SeededFaults)
    world.faults.calm()
    topics = await admin.describe_topics(names[:3])
    assert [len(topics[name].partitions) for name in names[:3]] == [3, 3, 2]
    assert names[3] not in await admin.list_topics()
    configs = await admin.describe_configs(resources[:3], names=["retention.ms"])
    assert {one["retention.ms"].value for one in configs.values()} == {"77"}
    committed = (await admin.list_group_offsets(GROUP))[GROUP]
    assert {place: offset for place, offset in committed.items() if place.topic != names[3]} == {
        TopicPartition(name, 1): OffsetAndMetadata(number) for number, name in enumerate(names[:3])
    }
    assert sorted(await admin.list_transactions()) == ["p", "q"]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_changes_are_made_through_a_bad_network(seed: int) -> None:
    random = SimWorld(SimLoop(), seed).random("faults")
    kinds = random.sample(KINDS, random.randint(1, len(KINDS)))
    faults = SeededFaults(random, {kind: 0.3 / len(kinds) for kind in kinds}, most=random.randint(1, 20))
    world = ClientWorld(seed, faults)

    async def scenario(world: ClientWorld) -> None:
        async with admin_of(world, request_timeout_ms=5000, bootstrap_timeout_ms=300_000) as admin:
            await change_much(world, admin)

    world.run(scenario)
