"""Static members of classic groups (KIP-345), and coordinators that die."""

from __future__ import annotations

import asyncio

import pytest

from group_world import GROUP, REBALANCE_MS, SESSION_MS, World, in_world, refused, subscription
from semel.coordinator.group.classic_states import ClassicState
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.leave_group import LeavingMember

STABLE, EMPTY, PREPARING = ClassicState.STABLE, ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE


# -- static members (KIP-345)


@in_world()
async def test_a_static_member_that_comes_back_keeps_its_assignment_without_a_rebalance(world: World) -> None:
    first = await world.join(instance_id="one")
    assert first.member_id.startswith("one-")
    await world.sync(first.member_id, 1, {first.member_id: b"mine"}, group_instance_id="one")
    again = await world.join(instance_id="one")
    assert again.error_code == 0
    assert again.generation_id == 1
    assert again.member_id != first.member_id
    assert (again.skip_assignment, again.leader) == (True, again.member_id)
    sync = await world.sync(again.member_id, 1, group_instance_id="one")
    assert sync.assignment == b"mine"
    (left,) = await world.groups.leave(GROUP, [LeavingMember(member_id=first.member_id, group_instance_id="one")])
    assert left.error_code == ErrorCode.FENCED_INSTANCE_ID
    for check in (
        world.heartbeat(first.member_id, 1, group_instance_id="one"),
        world.sync(first.member_id, 1, group_instance_id="one"),
        world.join(first.member_id, instance_id="one"),
        world.commit(1, member_id=first.member_id, generation=1, instance_id="one"),
    ):
        with pytest.raises(Refused) as error:
            await check
        assert refused(error) == ErrorCode.FENCED_INSTANCE_ID


@in_world()
async def test_before_version_9_a_leader_that_comes_back_does_not_take_itself_for_the_leader(world: World) -> None:
    first = await world.join(instance_id="one")
    await world.sync(first.member_id, 1, {first.member_id: b"mine"})
    again = await world.join(instance_id="one", version=8)
    assert (again.skip_assignment, again.leader, again.members) == (False, first.member_id, [])


@in_world()
async def test_a_static_member_that_comes_back_with_other_topics_makes_the_group_rebalance(world: World) -> None:
    first = await world.join(instance_id="one")
    await world.sync(first.member_id, 1, {first.member_id: b"mine"})
    again = await world.join(instance_id="one", protocols={"range": subscription("u")})
    assert again.generation_id == 2


@in_world()
async def test_a_static_member_that_changes_the_protocol_makes_the_group_rebalance(world: World) -> None:
    both = {"range": subscription("t"), "sticky": subscription("t")}
    first = await world.join(instance_id="one", protocols=both)
    await world.sync(first.member_id, 1, {first.member_id: b"mine"})
    again = await world.join(instance_id="one", protocols=dict(reversed(both.items())))
    assert (again.generation_id, again.protocol_name) == (2, "sticky")


@in_world()
async def test_a_static_member_that_comes_back_while_others_join_takes_its_own_place(world: World) -> None:
    waiting = asyncio.ensure_future(world.join(instance_id="one"))
    await asyncio.sleep(1)
    again = asyncio.ensure_future(world.join(instance_id="one"))
    assert (await waiting).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert (await again).error_code == 0
    assert len(world.classic().members) == 1
    # While the assignment is awaited the old id may be in it: everyone joins again.
    third = await world.join(instance_id="one")
    assert third.generation_id == 2


@in_world()
async def test_a_static_member_that_comes_back_is_not_given_what_its_old_process_waits_for(world: World) -> None:
    joins = [asyncio.ensure_future(world.join(instance_id=name)) for name in ("one", "two")]
    one, two = [(await join).member_id for join in joins]
    assert (await joins[0]).leader == one
    waiting = asyncio.ensure_future(world.sync(two, 1))
    await asyncio.sleep(0)
    again = asyncio.ensure_future(world.join(instance_id="two"))
    assert (await waiting).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert (await world.join(one, instance_id="one")).generation_id == 2
    assert (await again).generation_id == 2


@in_world()
async def test_a_static_member_whose_return_cannot_be_written_is_refused_and_the_old_one_stays(world: World) -> None:
    first = await world.join(instance_id="one")
    await world.sync(first.member_id, 1, {first.member_id: b"mine"})
    world.partition_of().refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(Refused) as error:
        await world.join(instance_id="one")
    assert refused(error) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.partition_of().refuses = None
    await world.heartbeat(first.member_id, 1, group_instance_id="one")


@in_world()
async def test_a_static_member_is_removed_by_its_instance_alone(world: World) -> None:
    first = await world.join(instance_id="one")
    await world.sync(first.member_id, 1, {first.member_id: b"mine"})
    results = await world.groups.leave(
        GROUP, [LeavingMember(group_instance_id="one"), LeavingMember(group_instance_id="two")]
    )
    assert [result.error_code for result in results] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.classic().state is EMPTY


@in_world()
async def test_a_static_member_that_missed_the_rebalance_stays_until_it_misses_the_assignment(world: World) -> None:
    ids = {}
    joins = [asyncio.ensure_future(world.join(instance_id=name, session_ms=600_000)) for name in ("one", "two")]
    for name, join in zip(("one", "two"), joins, strict=True):
        ids[name] = (await join).member_id
    leader = (await joins[0]).leader
    await world.sync(leader, 1, {one: one.encode() for one in ids.values()})
    third = await world.join(instance_id="three", session_ms=600_000)
    assert third.generation_id == 2
    assert third.leader == third.member_id
    assert set(world.classic().static) == {"one", "two", "three"}
    await world.sync(third.member_id, 2, {third.member_id: b"all"})
    await asyncio.sleep(REBALANCE_MS / 1000 + 1)
    assert set(world.classic().static) == {"three"}


# -- a coordinator that dies


@in_world()
async def test_members_survive_their_coordinator_and_get_a_fresh_session(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    await asyncio.sleep(SESSION_MS / 1000 - 1)
    await world.restart()
    await asyncio.sleep(SESSION_MS / 1000 - 1)
    await world.heartbeat(leader, generation)
    assert (await world.sync(other, generation)).assignment == other.encode()
    await asyncio.sleep(2)
    assert list(world.classic().members) == [leader]


@in_world()
async def test_who_waits_when_the_coordinator_goes_is_sent_to_look_for_it(world: World) -> None:
    generation, (leader, _) = await world.stable(2)
    joining = asyncio.ensure_future(world.join(leader))
    await asyncio.sleep(1)
    await world.restart()
    assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
    await world.heartbeat(leader, generation)


@in_world()
async def test_a_rebalance_that_was_under_way_begins_again(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    third = await world.member_id()
    joining = asyncio.ensure_future(world.join(third))
    await asyncio.gather(world.join(leader), world.join(other), joining)
    await world.restart()
    with pytest.raises(Refused) as error:
        await world.sync(leader, generation + 1, {leader: b"all"})
    assert refused(error) == ErrorCode.ILLEGAL_GENERATION
    responses = await asyncio.gather(world.join(leader), world.join(other))
    assert {response.generation_id for response in responses} == {generation + 1}
