"""How much metadata the members of groups may have."""

from __future__ import annotations

import asyncio

import pytest

from group_world import World, in_world, refused, subscription
from semel.log.errors import Refused
from semel.rpc.budget import MemoryBudget, Owner
from semel.wire.errors import ErrorCode

LIMIT = 100_000


@in_world(group_max_metadata_bytes=str(LIMIT))
async def test_a_member_that_would_bring_too_much_for_its_group_is_refused(world: World) -> None:
    heavy = {"range": bytes(60_000)}
    first = asyncio.ensure_future(world.join(protocols=heavy, version=3))
    await asyncio.sleep(0)
    with pytest.raises(Refused) as error:
        await world.join(protocols=heavy, version=3)
    assert refused(error) == ErrorCode.GROUP_MAX_SIZE_REACHED
    light = asyncio.ensure_future(world.join(protocols={"range": bytes(100)}, version=3))
    answers = await asyncio.gather(first, light)
    assert [answer.error_code for answer in answers] == [0, 0]


@in_world(group_max_metadata_bytes=str(LIMIT))
async def test_what_a_member_had_before_does_not_count_when_it_brings_something_new(world: World) -> None:
    _, (leader, _) = await world.stable(2, protocols={"range": bytes(40_000)})
    joins = [asyncio.ensure_future(world.join(leader, protocols={"range": bytes(50_000)}))]
    await asyncio.sleep(0)
    assert world.classic().metadata_bytes < LIMIT
    with pytest.raises(Refused) as error:
        await world.join(leader, protocols={"range": bytes(70_000)})
    assert refused(error) == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.check_counts()
    for join in joins:
        join.cancel()


@in_world()
async def test_groups_share_a_part_of_the_memory_and_who_finds_none_is_told_to_come_again(world: World) -> None:
    world.budget.take_anyway(64 << 20, Owner.GROUP)
    with pytest.raises(Refused) as error:
        await world.join(version=3)
    assert refused(error) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.create_topic("t", 1)
    with pytest.raises(Refused) as error:
        await world.enter("m", "t")
    assert refused(error) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.budget.give_back(64 << 20, Owner.GROUP)
    assert (await world.enter("m", "t")).error_code == 0


@in_world()
async def test_a_member_that_leaves_gives_its_memory_back(world: World) -> None:
    _, ids = await world.stable(3, protocols={"range": subscription("t") + bytes(5000)})
    counted = world.budget.bytes_of(Owner.GROUP)
    assert counted > 15_000
    await world.leave(*ids[1:])
    assert counted / 3 - 100 < world.budget.bytes_of(Owner.GROUP) < counted / 3 + 100
    await world.restart()
    await asyncio.sleep(1)
    world.check_counts()
    assert world.budget.bytes_of(Owner.GROUP) > 5000, "what was read from the log counts"


@in_world(group_max_metadata_bytes=str(LIMIT))
async def test_topics_of_kip_848_members_count_as_well(world: World) -> None:
    names = [f"topic-{number}" for number in range(500)]
    assert (await world.enter("first", *names)).error_code == 0
    with pytest.raises(Refused) as error:
        await world.enter("second", *names)
    assert refused(error) == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.check_counts()
    await world.beat("first", -1)
    assert world.budget.bytes_of(Owner.GROUP) == 0
    assert (await world.enter("second", *names)).error_code == 0


@in_world()
async def test_a_member_has_a_hundred_protocols_at_most(world: World) -> None:
    with pytest.raises(Refused) as error:
        await world.join(protocols={f"p{number}": b"" for number in range(101)})
    assert refused(error) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_budget_says_whether_it_has_room_without_taking_it() -> None:
    budget = MemoryBudget(100)
    assert budget.has_room(25, Owner.GROUP)
    assert not budget.has_room(26, Owner.GROUP)
    assert budget.used_bytes == 0
