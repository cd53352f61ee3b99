"""The life of a classic group after joining: assignment, heartbeats, leaving, dying, static members, restarts."""

from __future__ import annotations

import asyncio

import pytest

from group_world import GROUP, REBALANCE_MS, SESSION_MS, World, in_world, refused
from semel.coordinator.group.classic_states import ClassicState
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

STABLE, EMPTY, PREPARING = ClassicState.STABLE, ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE


async def beating(world: World, member_id: str, generation: int) -> None:
    """Sends heartbeats until it is told that they are of no use."""
    try:
        while True:
            await asyncio.sleep(SESSION_MS / 3000)
            await world.heartbeat(member_id, generation)
    except Refused:
        pass


# -- SyncGroup


@in_world()
async def test_everyone_gets_what_the_leader_assigned(world: World) -> None:
    ids = [await world.member_id() for _ in range(3)]
    responses = await asyncio.gather(*(world.join(one) for one in ids))
    leader = responses[0].leader
    followers = [asyncio.ensure_future(world.sync(one, 1)) for one in ids if one != leader]
    await asyncio.sleep(1)
    assert not any(sync.done() for sync in followers)
    lead = await world.sync(leader, 1, {one: one.encode() for one in ids})
    assert lead.assignment == leader.encode()
    assert lead.protocol_name == "range"
    for sync in followers:
        assert (await sync).error_code == 0
    late = await world.sync(ids[1], 1)
    assert late.assignment == ids[1].encode()


@in_world()
async def test_a_member_that_the_leader_forgot_has_nothing(world: World) -> None:
    ids = [await world.member_id() for _ in range(2)]
    responses = await asyncio.gather(*(world.join(one) for one in ids))
    leader = responses[0].leader
    await world.sync(leader, 1, {leader: b"all", "stranger": b"lost"})
    other = next(one for one in ids if one != leader)
    assert (await world.sync(other, 1)).assignment == b""


@in_world()
async def test_an_assignment_is_told_only_when_it_is_durable(world: World) -> None:
    member_id = await world.member_id()
    await world.join(member_id)
    partition = world.partition_of()
    partition.is_held = True
    sync = asyncio.ensure_future(world.sync(member_id, 1, {member_id: b"all"}))
    await asyncio.sleep(100)
    assert not sync.done()
    partition.let_go()
    assert (await sync).assignment == b"all"


@in_world()
async def test_an_assignment_that_cannot_be_written_is_refused_and_changes_nothing(world: World) -> None:
    member_id = await world.member_id()
    await world.join(member_id)
    world.partition_of().refuses = ErrorCode.KAFKA_STORAGE_ERROR
    sync = await world.sync(member_id, 1, {member_id: b"all"})
    assert sync.error_code == ErrorCode.NOT_COORDINATOR
    assert not world.side().shard.state.classic
    assert world.classic().state is PREPARING
    world.partition_of().refuses = None
    joined = await world.join(member_id)
    assert (await world.sync(member_id, joined.generation_id, {member_id: b"all"})).assignment == b"all"


@in_world()
async def test_a_sync_of_the_wrong_generation_member_or_protocol_is_refused(world: World) -> None:
    generation, (leader, _) = await world.stable(2)
    for member_id, number, options, code in (
        (leader, generation + 1, {}, ErrorCode.ILLEGAL_GENERATION),
        (leader, generation - 1, {}, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", generation, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (leader, generation, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (leader, generation, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (leader, generation, {"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(Refused) as error:
            await world.sync(member_id, number, **options)
        assert refused(error) == code
    with pytest.raises(Refused) as error:
        await world.sync(leader, generation, group_id="nowhere")
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID


@in_world()
async def test_who_waits_for_an_assignment_is_told_when_the_group_rebalances(world: World) -> None:
    ids = [await world.member_id() for _ in range(2)]
    responses = await asyncio.gather(*(world.join(one) for one in ids))
    follower = next(one for one in ids if one != responses[0].leader)
    waiting = asyncio.ensure_future(world.sync(follower, 1))
    third = await world.member_id()
    joining = asyncio.ensure_future(world.join(third))
    assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    with pytest.raises(Refused) as error:
        await world.sync(follower, 1)
    assert refused(error) == ErrorCode.REBALANCE_IN_PROGRESS
    joining.cancel()


@in_world()
async def test_who_does_not_come_for_its_assignment_is_out(world: World) -> None:
    ids = [await world.member_id(session_ms=600_000) for _ in range(2)]
    responses = await asyncio.gather(*(world.join(one, session_ms=600_000) for one in ids))
    leader = responses[0].leader
    await world.sync(leader, 1, dict.fromkeys(ids, b"x"))
    await asyncio.sleep(REBALANCE_MS / 1000 - 1)
    assert world.classic().state is STABLE
    await asyncio.sleep(2)
    assert list(world.classic().members) == [leader]
    assert world.classic().state is PREPARING


# -- Heartbeat


@in_world()
async def test_a_heartbeat_of_the_wrong_generation_member_or_instance_is_refused(world: World) -> None:
    generation, (leader, _) = await world.stable(2)
    for member_id, options, code in (
        (leader, {"generation_id": generation + 1}, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (leader, {"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (leader, {"group_id": "nowhere"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (leader, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ):
        with pytest.raises(Refused) as error:
            await world.heartbeat(member_id, generation, **options)
        assert refused(error) == code


@in_world()
async def test_a_member_that_falls_silent_is_out_and_the_others_rebalance(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    alive = asyncio.ensure_future(beating(world, other, generation))
    await asyncio.sleep(SESSION_MS / 1000 - 1)
    assert world.classic().state is STABLE
    await alive
    joined = await world.join(other)
    assert (joined.leader, joined.generation_id) == (other, generation + 1)
    assert leader not in world.classic().members


@in_world()
async def test_a_member_that_sends_heartbeats_stays(world: World) -> None:
    generation, ids = await world.stable(2)
    beats = [asyncio.ensure_future(beating(world, one, generation)) for one in ids]
    await asyncio.sleep(SESSION_MS)
    assert world.classic().state is STABLE
    assert list(world.classic().members) == ids
    for beat in beats:
        beat.cancel()


@in_world()
async def test_an_offset_commit_is_as_good_as_a_heartbeat(world: World) -> None:
    generation, (member_id,) = await world.stable(1)
    for _ in range(5):
        await asyncio.sleep(SESSION_MS / 1000 - 1)
        assert await world.commit(1, member_id=member_id, generation=generation) == 0
    assert world.classic().state is STABLE


@in_world()
async def test_a_group_whose_members_all_died_is_empty_and_keeps_its_generation(world: World) -> None:
    generation, _ = await world.stable(2)
    await asyncio.sleep(SESSION_MS / 1000 + 1)
    group = world.classic()
    assert group.state is EMPTY
    record = world.side().shard.state.classic[GROUP]
    assert (list(record.members), record.leader, record.protocol) == ([], None, None)
    assert record.generation > generation
    joined = await world.join(await world.member_id())
    assert joined.generation_id == record.generation + 1


# -- LeaveGroup


@in_world()
async def test_when_the_leader_leaves_another_one_leads(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    (result,) = await world.leave(leader)
    assert result.error_code == 0
    assert world.classic().state is PREPARING
    joined = await world.join(other)
    assert (joined.leader, joined.generation_id) == (other, generation + 1)
    assert [member.member_id for member in joined.members] == [other]


@in_world()
async def test_when_everyone_leaves_the_group_is_empty_at_once(world: World) -> None:
    _, ids = await world.stable(3)
    results = await world.leave(*ids)
    assert [result.error_code for result in results] == [0, 0, 0]
    assert world.classic().state is EMPTY


@in_world()
async def test_each_member_that_leaves_is_answered_for_itself(world: World) -> None:
    _, (leader, _) = await world.stable(2)
    pending = await world.member_id()
    results = await world.leave("stranger", leader, pending)
    assert [result.error_code for result in results] == [ErrorCode.UNKNOWN_MEMBER_ID, 0, 0]
    assert pending not in world.classic().pending_join
    with pytest.raises(Refused) as error:
        await world.leave(leader, group_id="nowhere")
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID


@in_world()
async def test_a_member_that_leaves_while_its_join_or_sync_waits_is_told_so(world: World) -> None:
    ids = [await world.member_id() for _ in range(2)]
    joins = [asyncio.ensure_future(world.join(one)) for one in ids]
    await asyncio.sleep(1)
    await world.leave(ids[1])
    assert (await joins[1]).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await joins[0]).generation_id == 1
    third = await world.member_id()
    joining = asyncio.ensure_future(world.join(third))
    await asyncio.sleep(0)
    await world.join(ids[0])
    await joining
    waiting = asyncio.ensure_future(world.sync(third, 2))
    await asyncio.sleep(0)
    await world.leave(third)
    assert (await waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
