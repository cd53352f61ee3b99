"""Groups behind the fault proxy: connections cut, answers lost, delayed, swallowed, for both protocols.

When the network is calm again, every partition is with exactly one member, and what the program was told adds up.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from membership_world import ClientWorld, Member

from semel.client.errors import FencedInstance
from semel.sim.attack.fault_policy import drawn_faults

APIS = (
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "Metadata",
    "ApiVersions",
)
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range"},
    "sticky": {"partition_assignment_strategy": "sticky"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_when_the_network_is_calm_again_every_partition_has_one_reader(seed: int, protocol: str) -> None:
    faults = drawn_faults(random.Random(f"{protocol}/{seed}"), most=60, only=APIS)
    settings = {
        "session_timeout_ms": 15_000,
        "heartbeat_interval_ms": 1000,
        "request_timeout_ms": 5000,
        "max_poll_interval_ms": 60_000,
        "bootstrap_timeout_ms": 600_000,
        **PROTOCOLS[protocol],
    }
    broker = {"group.consumer.session.timeout.ms": "45000", "group.min.session.timeout.ms": "1000"}

    async def scenario(world: ClientWorld) -> None:
        chance = world.random("members")

        async def started(instance_id: str | None) -> Member:
            one = Member(world.host(), world.address, "t", group_instance_id=instance_id, **settings)
            await one.cluster.start()
            one.cluster.watch(["t"])
            one.membership.subscription_changed()
            one.keep_polling(chance.choice([0.05, 0.5, 2.0]))
            return one

        await world.create_topic("t", 6)
        members: list[Member] = []
        for number in range(4):
            members.append(await started(f"static{number}" if chance.random() < 0.3 else None))
            await asyncio.sleep(chance.uniform(0, 20))
        await asyncio.sleep(60)
        if chance.random() < 0.5:
            await world.lose_broker(power=False, down_s=chance.uniform(0.1, 30))
        gone = members.pop(chance.randrange(4))
        await (gone.close() if chance.random() < 0.5 else gone.die())
        await asyncio.sleep(60)
        faults.calm()
        world.note("calm")
        await asyncio.sleep(60)
        for number, one in enumerate(members):
            if isinstance(one.membership.failure, FencedInstance):
                # A join of its own that came late took its place, as another process would have: it is started again.
                await one.close()
                members[number] = await started(one.settings.group_instance_id)
        await asyncio.sleep(120)
        for one in members:
            assert one.membership.failure is None, one.membership.failure
            assert one.membership.is_settled()
        held = sorted(each for one in members for each in one.owner.holds)
        assert len(held) == len(set(held)) == 6, [one.holds for one in members]
        for one in members:
            assert told(one.owner.told) == {str(each) for each in one.owner.holds}
            await one.close()

    ClientWorld(seed, faults, settings=broker).run(scenario)


def told(notes: list[str]) -> set[str]:
    """What a program holds that believes what it is told: nothing is given twice, nor taken that is not there."""
    held: set[str] = set()
    for note in notes:
        what, *partitions = note.split()
        if what == "assign":
            assert not held & set(partitions)
            held |= set(partitions)
        else:
            assert held >= set(partitions)
            held -= set(partitions)
    return held
