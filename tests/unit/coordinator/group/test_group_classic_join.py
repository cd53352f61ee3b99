"""JoinGroup of the classic protocol: ids first, the vote, the leader, who waits for whom and who is refused."""

from __future__ import annotations

import asyncio

import pytest

from group_world import DELAY_MS, GROUP, REBALANCE_MS, SESSION_MS, World, in_world, refused, subscription
from semel.config import BrokerConfig
from semel.coordinator.group.classic_states import MOVES, ClassicState, Event, ForbiddenMove, next_state
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode


def test_every_move_that_is_not_in_the_table_is_forbidden() -> None:
    for state in ClassicState:
        for event in Event:
            if (state, event) in MOVES:
                assert next_state(state, event) is MOVES[state, event]
            else:
                with pytest.raises(ForbiddenMove):
                    next_state(state, event)


@in_world()
async def test_a_new_member_is_given_an_id_before_it_may_join(world: World) -> None:
    response = await world.join(client="reader")
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id.startswith("reader-")
    joined = await world.join(response.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, response.member_id)
    assert joined.protocol_name == "range"


@in_world()
async def test_before_version_4_a_member_joins_with_its_first_request(world: World) -> None:
    joined = await world.join(version=3)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)


@in_world()
async def test_an_id_that_nobody_was_given_is_refused(world: World) -> None:
    with pytest.raises(Refused) as error:
        await world.join("stranger")
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID
    await world.stable(1)
    with pytest.raises(Refused) as error:
        await world.join("stranger")
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID


@in_world()
async def test_a_pending_id_is_forgotten_after_the_session_timeout(world: World) -> None:
    member_id = await world.member_id()
    await asyncio.sleep(SESSION_MS / 1000 + 1)
    with pytest.raises(Refused) as error:
        await world.join(member_id)
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID
    assert not world.side().rebalance.groups
    assert not world.side().timers._timers


_OF_A_CLUSTER = {
    "listeners": "PLAINTEXT://c:1,CONTROLLER://c:2",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@c:2",
}


@in_world()
async def test_only_in_a_cluster_does_the_first_rebalance_wait_when_nobody_says(world: World) -> None:
    loop = asyncio.get_running_loop()
    for settings, waits_s in ({}, 0), (_OF_A_CLUSTER, 3):
        world.config = BrokerConfig(settings)
        member_id = await world.member_id(group_id=f"waits {waits_s}")
        began_s = loop.time()
        await world.join(member_id, group_id=f"waits {waits_s}")
        assert loop.time() - began_s == pytest.approx(waits_s)


@in_world()
async def test_the_first_rebalance_waits_for_more_members_and_longer_when_they_come(world: World) -> None:
    loop = asyncio.get_running_loop()
    first, second, third = [await world.member_id() for _ in range(3)]
    joins = [asyncio.ensure_future(world.join(first))]
    await asyncio.sleep(DELAY_MS / 1000 - 1)
    joins.append(asyncio.ensure_future(world.join(second)))
    await asyncio.sleep(DELAY_MS / 1000)
    assert not joins[0].done()
    joins.append(asyncio.ensure_future(world.join(third)))
    responses = await asyncio.gather(*joins)
    assert loop.time() == pytest.approx(3 * DELAY_MS / 1000)
    assert {response.generation_id for response in responses} == {1}
    assert {response.leader for response in responses} == {first}


@in_world()
async def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout(world: World) -> None:
    async def join_after(seconds: float) -> int:
        await asyncio.sleep(seconds)
        joined = await world.join(version=3, rebalance_ms=7000)
        return joined.generation_id

    async with asyncio.TaskGroup() as tasks:
        joins = [tasks.create_task(join_after(second)) for second in range(7)]
    assert [join.result() for join in joins] == [1] * 7
    assert asyncio.get_running_loop().time() <= 7.01


@in_world()
async def test_only_the_leader_is_told_who_the_members_are(world: World) -> None:
    ids = [await world.member_id() for _ in range(3)]
    responses = await asyncio.gather(*(world.join(one) for one in ids))
    for response in responses:
        expected = set(ids) if response.member_id == response.leader else set()
        assert {member.member_id for member in response.members} == expected


@in_world()
async def test_members_vote_for_the_first_protocol_that_all_of_them_have(world: World) -> None:
    data = subscription("t")
    wishes = [("sticky", "range"), ("roundrobin", "range", "sticky"), ("range", "sticky")]
    joins = [world.join(version=3, protocols=dict.fromkeys(names, data)) for names in wishes]
    responses = await asyncio.gather(*joins)
    # roundrobin is not with everyone; range has two votes, sticky one.
    assert {response.protocol_name for response in responses} == {"range"}


@in_world()
async def test_a_member_that_shares_no_protocol_is_refused(world: World) -> None:
    await world.stable(1)
    for options in (
        {"protocols": {"sticky": b""}},
        {"protocol_type": "connect"},
        {"protocols": {}},
        {"protocol_type": ""},
    ):
        with pytest.raises(Refused) as error:
            await world.join(**options)  # type: ignore[arg-type]
        assert refused(error) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_world()
async def test_a_new_group_needs_a_protocol(world: World) -> None:
    with pytest.raises(Refused) as error:
        await world.join(protocols={})
    assert refused(error) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert GROUP not in world.side().rebalance.groups


@pytest.mark.parametrize("session_ms", [5999, 1_800_001])
@in_world()
async def test_a_session_timeout_outside_of_the_bounds_is_refused(world: World, session_ms: int) -> None:
    with pytest.raises(Refused) as error:
        await world.join(session_ms=session_ms)
    assert refused(error) == ErrorCode.INVALID_SESSION_TIMEOUT


@in_world()
async def test_a_group_without_a_name_is_refused(world: World) -> None:
    with pytest.raises(Refused) as error:
        await world.join(group_id="")
    assert refused(error) == ErrorCode.INVALID_GROUP_ID


@in_world(group_max_size="2")
async def test_a_full_group_takes_nobody_else(world: World) -> None:
    generation, ids = await world.stable(2)
    with pytest.raises(Refused) as error:
        await world.join()
    assert refused(error) == ErrorCode.GROUP_MAX_SIZE_REACHED
    await world.heartbeat(ids[0], generation)
    await world.leave(ids[1])
    third = await world.member_id()
    responses = await asyncio.gather(world.join(third), world.join(ids[0]))
    assert {response.generation_id for response in responses} == {generation + 1}


@in_world(group_max_size="2")
async def test_while_members_join_the_first_to_come_have_the_places(world: World) -> None:
    ids = [await world.member_id() for _ in range(3)]
    joins = [asyncio.ensure_future(world.join(one)) for one in ids]
    results = await asyncio.gather(*joins, return_exceptions=True)
    assert isinstance(results[2], Refused)
    assert results[2].code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(world.classic().members) == 2


@in_world()
async def test_a_new_member_makes_the_others_rejoin(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    third = await world.member_id()
    joining = asyncio.ensure_future(world.join(third))
    await asyncio.sleep(0)
    for member in (leader, other):
        with pytest.raises(Refused) as error:
            await world.heartbeat(member, generation)
        assert refused(error) == ErrorCode.REBALANCE_IN_PROGRESS
    responses = await asyncio.gather(world.join(leader), world.join(other), joining)
    assert {response.generation_id for response in responses} == {generation + 1}
    assert {response.leader for response in responses} == {leader}


@in_world()
async def test_who_does_not_rejoin_in_time_is_out_and_the_leader_is_replaced(world: World) -> None:
    generation, (leader, other) = await world.stable(2, session_ms=REBALANCE_MS + 60_000)
    third = await world.member_id()
    responses = await asyncio.gather(world.join(third), world.join(other))
    assert asyncio.get_running_loop().time() >= REBALANCE_MS / 1000
    assert {response.generation_id for response in responses} == {generation + 1}
    assert leader not in world.classic().members
    assert {response.leader for response in responses} <= {other, third}
    with pytest.raises(Refused) as error:
        await world.heartbeat(leader, generation)
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID


@in_world()
async def test_a_member_that_missed_its_answer_gets_it_again(world: World) -> None:
    member_id = await world.member_id()
    first = await world.join(member_id)
    again = await world.join(member_id)
    assert again == first
    assert world.classic().state is ClassicState.COMPLETING_REBALANCE


@in_world()
async def test_a_stable_member_that_asks_again_is_answered_but_the_leader_rebalances(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    again = await world.join(other)
    assert (again.error_code, again.generation_id, again.members) == (0, generation, [])
    assert world.classic().state is ClassicState.STABLE
    responses = await asyncio.gather(world.join(leader), world.join(other))
    assert {response.generation_id for response in responses} == {generation + 1}


@in_world()
async def test_a_new_subscription_makes_the_group_rebalance(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    wider = {"range": subscription("t", "u")}
    responses = await asyncio.gather(world.join(other, protocols=wider), world.join(leader))
    assert {response.generation_id for response in responses} == {generation + 1}
    told = next(response for response in responses if response.members)
    assert {member.metadata for member in told.members} == {subscription("t", "u"), subscription("t")}


@in_world()
async def test_a_join_on_a_newer_connection_takes_the_place_of_the_one_that_waits(world: World) -> None:
    _, (leader, other) = await world.stable(2)
    wider = {"range": subscription("t", "u")}
    first = asyncio.ensure_future(world.join(other, protocols=wider))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(world.join(other, protocols=wider))
    assert (await first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    await world.join(leader)
    assert (await second).error_code == 0


@in_world()
async def test_a_first_join_whose_client_is_gone_is_given_up_after_five_minutes(world: World) -> None:
    _, (leader, _other) = await world.stable(2, session_ms=1_000_000, rebalance_ms=1_000_000)
    gone = asyncio.ensure_future(world.join(version=3, rebalance_ms=1_000_000))
    await asyncio.sleep(299)
    assert len(world.classic().members) == 3
    await asyncio.sleep(2)
    assert len(world.classic().members) == 2
    assert (await gone).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert leader in world.classic().members


@in_world()
async def test_a_new_member_whose_connection_ends_while_it_joins_is_not_waited_for(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    gone_id = await world.member_id()
    gone = asyncio.ensure_future(world.join(gone_id))
    await asyncio.sleep(0)
    gone.cancel()  # which is what the end of a connection does to the requests that wait on it
    responses = await asyncio.gather(world.join(leader), world.join(other))
    assert {response.generation_id for response in responses} == {generation + 1}
    assert set(world.classic().members) == {leader, other}
    with pytest.raises(Refused) as error:
        await world.join(gone_id)
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID


@in_world()
async def test_a_known_member_whose_connection_ends_while_it_joins_keeps_its_place(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    joining = asyncio.ensure_future(world.join(await world.member_id()))
    lost = asyncio.ensure_future(world.join(other))
    await asyncio.sleep(0)
    lost.cancel()
    await asyncio.gather(world.join(leader), joining)
    assert (await world.join(other)).generation_id == generation + 1
    assert len(world.classic().members) == 3


@in_world()
async def test_who_waits_for_slow_members_is_not_taken_for_dead(world: World) -> None:
    generation, (leader, other) = await world.stable(2)
    joins = [asyncio.ensure_future(world.join(await world.member_id()))]
    await asyncio.sleep(0)
    joins.append(asyncio.ensure_future(world.join(leader)))
    for _ in range(5):
        await asyncio.sleep(SESSION_MS / 1000 - 1)
        with pytest.raises(Refused) as error:
            await world.heartbeat(other, generation)
        assert refused(error) == ErrorCode.REBALANCE_IN_PROGRESS
    joins.append(asyncio.ensure_future(world.join(other)))
    responses = await asyncio.gather(*joins)
    assert {(response.error_code, response.generation_id) for response in responses} == {(0, generation + 1)}
    assert len(world.classic().members) == 3
