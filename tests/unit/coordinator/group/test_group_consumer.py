"""KIP-848: joining, epochs, targets, giving up before taking, static members, timeouts, changes of topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from group_world import GROUP, REBALANCE_MS, World, in_world, refused
from semel.coordinator.group.consumer_group import MemberState
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

SESSION_S = 45


def given(response: ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
    if response.assignment is None:
        return None
    return {topic.topic_id: list(topic.partitions) for topic in response.assignment.topic_partitions}


def group(world: World) -> Any:
    return world.side().shard.state.consumer[GROUP]


# -- joining


@in_world()
async def test_the_first_member_gets_everything_with_its_first_heartbeat(world: World) -> None:
    topic = world.create_topic("t", 3)
    response = await world.enter("a", "t")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", 1)
    assert response.heartbeat_interval_ms == 5000
    assert given(response) == {topic: [0, 1, 2]}
    assert group(world).state == "Stable"
    again = await world.beat("a", 1)
    assert (again.member_epoch, again.assignment) == (1, None)


@in_world()
async def test_before_version_1_the_coordinator_makes_the_member_id(world: World) -> None:
    world.create_topic("t", 1)
    response = await world.enter("", "t", version=0)
    assert response.member_id
    with pytest.raises(Refused) as error:
        await world.enter("", "t", version=1)
    assert refused(error) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "wrong",
    [
        {"rebalance_timeout_ms": -1},
        {"owned": {bytes(16): [0]}},
        {"owned": None},
        {"subscribed_topic_names": None},
        {"instance_id": ""},
        {"rack_id": ""},
    ],
)
@in_world()
async def test_a_join_that_is_not_complete_is_refused(world: World, wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused) as error:
        await world.enter("a", "t", **wrong)
    assert refused(error) == ErrorCode.INVALID_REQUEST
    assert GROUP not in world.side().shard.state.consumer


@pytest.mark.parametrize(("member_id", "epoch"), [("a", -3), ("", 1), ("", -1), ("a", -2)])
@in_world()
async def test_a_heartbeat_that_contradicts_itself_is_refused(world: World, member_id: str, epoch: int) -> None:
    with pytest.raises(Refused) as error:
        await world.beat(member_id, epoch)
    assert refused(error) == ErrorCode.INVALID_REQUEST


@in_world()
async def test_an_assignor_that_is_not_offered_is_refused(world: World) -> None:
    with pytest.raises(Refused) as error:
        await world.enter("a", "t", server_assignor="sticky")
    assert refused(error) == ErrorCode.UNSUPPORTED_ASSIGNOR


@in_world(group_consumer_max_size="1")
async def test_a_full_group_takes_nobody_else(world: World) -> None:
    await world.enter("a", "t")
    with pytest.raises(Refused) as error:
        await world.enter("b", "t")
    assert refused(error) == ErrorCode.GROUP_MAX_SIZE_REACHED
    await world.enter("a", "t")


@in_world()
async def test_a_group_or_member_that_is_not_there_is_refused(world: World) -> None:
    for epoch in (1, -1):
        with pytest.raises(Refused) as error:
            await world.beat("a", epoch)
        assert refused(error) == ErrorCode.GROUP_ID_NOT_FOUND
    await world.enter("a", "t")
    for epoch in (1, -1):
        with pytest.raises(Refused) as error:
            await world.beat("b", epoch)
        assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID


@in_world()
async def test_the_assignor_that_most_members_ask_for_is_used(world: World) -> None:
    topics = [world.create_topic(name, 1) for name in ("t", "u")]
    await world.enter("a", "t", "u", server_assignor="range")
    await world.enter("b", "t", "u")
    # Range gives the first partition of every topic to the first member, uniform one to each.
    assert group(world).target == {"a": frozenset((topic, 0) for topic in topics), "b": frozenset()}
    assert (await world.groups.describe_consumer(GROUP)).assignor_name == "range"


# -- from one assignment to the next


@in_world()
async def test_a_partition_moves_only_after_its_owner_has_given_it_up(world: World) -> None:
    topic = world.create_topic("t", 4)
    await world.enter("a", "t")
    b = await world.enter("b", "t")
    assert (b.member_epoch, given(b)) == (2, {})
    assert group(world).state == "Reconciling"
    # a is told what to keep, and stays in its epoch.
    a = await world.beat("a", 1)
    kept = given(a)
    assert kept is not None
    assert a.member_epoch == 1
    assert len(kept[topic]) == 2
    # It does not say that it has let go; b gets nothing.
    assert (await world.beat("a", 1)).member_epoch == 1
    assert given(await world.beat("b", 2)) is None
    assert (await world.beat("a", 1, owned={topic: [0, 1, 2, 3]})).member_epoch == 1
    # Now it has.
    assert (await world.beat("a", 1, owned=kept)).member_epoch == 2
    b = await world.beat("b", 2)
    taken = given(b)
    assert taken is not None
    assert sorted(kept[topic] + taken[topic]) == [0, 1, 2, 3]
    assert group(world).state == "Stable"


@in_world()
async def test_a_member_that_leaves_frees_its_partitions_at_once(world: World) -> None:
    topic = world.create_topic("t", 2)
    await world.enter("a", "t")
    await world.enter("b", "t")
    left = await world.beat("a", -1)
    assert (left.member_id, left.member_epoch) == ("a", -1)
    b = await world.beat("b", 2)
    assert (b.member_epoch, given(b)) == (3, {topic: [0, 1]})


@in_world()
async def test_a_member_that_falls_silent_is_removed(world: World) -> None:
    topic = world.create_topic("t", 2)
    await world.enter("a", "t")
    await world.enter("b", "t")
    await asyncio.sleep(SESSION_S - 1)
    await world.beat("b", 2)
    await asyncio.sleep(2)
    with pytest.raises(Refused) as error:
        await world.beat("a", 1)
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID
    assert given(await world.beat("b", 2)) == {topic: [0, 1]}


@in_world()
async def test_a_member_that_does_not_give_up_in_time_is_removed(world: World) -> None:
    topic = world.create_topic("t", 2)
    await world.enter("a", "t", rebalance_timeout_ms=60_000)
    await world.enter("b", "t")
    await world.beat("a", 1)
    for _ in range(5):
        await asyncio.sleep(REBALANCE_MS / 1000 / 5 - 0.1)
        await world.beat("a", 1)
        await world.beat("b", 2)
    assert "a" in group(world).members
    await asyncio.sleep(1)
    assert "a" not in group(world).members
    assert given(await world.beat("b", 2)) == {topic: [0, 1]}


@in_world()
async def test_a_member_whose_answer_was_lost_is_heard_and_a_stale_one_is_fenced(world: World) -> None:
    topic = world.create_topic("t", 2)
    await world.enter("a", "t")
    world.add_partitions("t", 3)
    assert (await world.beat("a", 1)).member_epoch == 2
    # It comes again with the epoch before, reading no more than it may.
    again = await world.beat("a", 1, owned={topic: [0, 1]}, subscribed_topic_names=["t"], rebalance_timeout_ms=1)
    assert (again.member_epoch, given(again)) == (2, {topic: [0, 1, 2]})
    for epoch, owned in ((1, {topic: [0, 9]}), (1, None), (3, {})):
        with pytest.raises(Refused) as error:
            await world.beat("a", epoch, owned=owned)
        assert refused(error) == ErrorCode.FENCED_MEMBER_EPOCH


@in_world()
async def test_a_fenced_member_joins_again_with_nothing(world: World) -> None:
    topic = world.create_topic("t", 2)
    await world.enter("a", "t")
    await world.enter("b", "t")
    a = await world.enter("a", "t")
    assert a.member_epoch == 2
    kept = given(a)
    assert kept is not None
    assert len(kept[topic]) == 1
    taken = given(await world.beat("b", 2))
    assert taken is not None
    assert sorted(kept[topic] + taken[topic]) == [0, 1]


@in_world()
async def test_a_new_subscription_makes_a_new_target(world: World) -> None:
    topics = [world.create_topic(name, 1) for name in ("t", "u")]
    await world.enter("a", "t")
    a = await world.beat("a", 1, subscribed_topic_names=["t", "u"])
    assert (a.member_epoch, given(a)) == (2, {topic: [0] for topic in topics})
    a = await world.beat("a", 2, subscribed_topic_names=["u"])
    assert (a.member_epoch, given(a)) == (2, {topics[1]: [0]})
    a = await world.beat("a", 2, owned={topics[1]: [0]})
    assert (a.member_epoch, given(a)) == (3, None)


# -- topics that change


@in_world()
async def test_new_partitions_new_topics_and_deleted_topics_are_noticed(world: World) -> None:
    first = world.create_topic("t", 1)
    a = await world.enter("a", "t", "u")
    assert given(a) == {first: [0]}
    world.add_partitions("t", 2)
    a = await world.beat("a", 1)
    assert (a.member_epoch, given(a)) == (2, {first: [0, 1]})
    second = world.create_topic("u", 1)
    a = await world.beat("a", 2)
    assert (a.member_epoch, given(a)) == (3, {first: [0, 1], second: [0]})
    world.delete_topic("t")
    a = await world.beat("a", 3)
    assert given(a) == {second: [0]}
    a = await world.beat("a", 3, owned={second: [0]})
    assert a.member_epoch == 4
    # Created anew it is another topic.
    third = world.create_topic("t", 1)
    assert given(await world.beat("a", 4)) == {second: [0], third: [0]}


@in_world()
async def test_a_topic_that_nobody_wants_changes_nothing(world: World) -> None:
    world.create_topic("t", 1)
    await world.enter("a", "t")
    world.create_topic("other", 1)
    assert (await world.beat("a", 1)).member_epoch == 1
    assert group(world).epoch == 1


@in_world()
async def test_a_pattern_follows_the_topics_that_match_it(world: World) -> None:
    orders = world.create_topic("orders-eu", 1)
    world.create_topic("bills", 1)
    options = {"subscribed_topic_names": None, "subscribed_topic_regex": "orders-.*"}
    a = await world.enter("a", **options)  # type: ignore[arg-type]
    assert given(a) == {orders: [0]}
    assert group(world).patterns["orders-.*"].topics == {"orders-eu"}
    more = world.create_topic("orders-us", 1)
    a = await world.beat("a", 1)
    assert given(a) == {orders: [0], more: [0]}
    await world.restart()
    assert (await world.beat("a", 2)).member_epoch == 2
    # An empty pattern takes it away.
    a = await world.beat("a", 2, subscribed_topic_regex="", subscribed_topic_names=["bills"])
    assert given(a) == {}
    assert not group(world).patterns


@in_world()
async def test_a_pattern_that_is_none_is_refused(world: World) -> None:
    for text in ("orders-(", "a{2000}", "(?=x)", "x" * 2000):
        with pytest.raises(Refused) as error:
            await world.enter("a", subscribed_topic_names=None, subscribed_topic_regex=text)
        assert refused(error) == ErrorCode.INVALID_REGULAR_EXPRESSION


# -- static members


@in_world()
async def test_a_static_member_that_leaves_for_a_while_comes_back_to_its_partitions(world: World) -> None:
    topic = world.create_topic("t", 2)
    await world.enter("a", "t", instance_id="one")
    left = await world.beat("a", -2, instance_id="one")
    assert left.member_epoch == -2
    assert group(world).members["a"].epoch == -2
    back = await world.enter("a2", "t", instance_id="one")
    assert (back.member_epoch, given(back)) == (1, {topic: [0, 1]})
    assert list(group(world).members) == ["a2"]
    assert group(world).epoch == 1
    for epoch in (1, -1, -2):
        with pytest.raises(Refused) as error:
            await world.beat("a", epoch, instance_id="one")
        assert refused(error) == ErrorCode.FENCED_INSTANCE_ID


@in_world()
async def test_the_place_of_a_static_member_that_did_not_leave_is_not_free(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t", instance_id="one")
    with pytest.raises(Refused) as error:
        await world.enter("b", "t", instance_id="one")
    assert refused(error) == ErrorCode.UNRELEASED_INSTANCE_ID
    for epoch in (1, -1):
        with pytest.raises(Refused) as error:
            await world.beat("b", epoch, instance_id="two")
        assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID


@in_world()
async def test_a_static_member_that_does_not_come_back_loses_its_place(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t", instance_id="one")
    await world.beat("a", -2, instance_id="one")
    await asyncio.sleep(SESSION_S + 1)
    assert not group(world).members
    assert group(world).state == "Empty"


# -- restarts, offsets, the other protocol


@in_world()
async def test_members_survive_their_coordinator_and_get_a_fresh_session(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t")
    await world.enter("b", "t")
    await world.beat("a", 1)
    assert group(world).members["a"].state is MemberState.UNREVOKED
    await asyncio.sleep(SESSION_S - 1)
    await world.restart()
    await asyncio.sleep(SESSION_S - 1)
    await world.beat("b", 2)
    await asyncio.sleep(2)
    assert list(group(world).members) == ["b"]


@in_world()
async def test_a_member_that_has_not_given_up_is_removed_by_the_next_coordinator_too(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t")
    await world.enter("b", "t")
    await world.beat("a", 1)
    await world.restart()
    for _ in range(7):
        await asyncio.sleep(9)
        if "a" in group(world).members:
            await world.beat("a", 1)
        await world.beat("b", 2)
    assert "a" not in group(world).members


@in_world()
async def test_members_commit_and_fetch_with_their_epoch(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t")
    assert await world.commit(1, member_id="a", generation=1) == 0
    for options, code in (
        ({"member_id": "a", "generation": 2}, ErrorCode.STALE_MEMBER_EPOCH),
        ({"member_id": "b", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "generation": 1, "version": 8}, ErrorCode.UNSUPPORTED_VERSION),
    ):
        with pytest.raises(Refused) as error:
            await world.commit(2, **options)
        assert refused(error) == code
    assert await world.fetched(member_id="a", member_epoch=1) == 1
    assert await world.fetched() == 1
    for member_id, epoch, code in (
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(Refused) as error:
            await world.fetched(member_id=member_id, member_epoch=epoch)
        assert refused(error) == code


@in_world()
async def test_in_a_transaction_a_stale_epoch_is_told_as_a_generation(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t")
    offsets = [("t", 0, 5, -1, None)]
    with pytest.raises(Refused) as error:
        await world.groups.commit_in_transaction(GROUP, "a", 2, None, 7, 0, offsets)
    assert refused(error) == ErrorCode.ILLEGAL_GENERATION
    codes = await world.groups.commit_in_transaction(GROUP, "a", 1, None, 7, 0, offsets)
    assert codes == {("t", 0): 0}
    assert (await world.groups.commit_in_transaction(GROUP, "", -1, None, 7, 0, offsets))["t", 0] == 0


@in_world()
async def test_a_group_has_one_protocol_at_a_time(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t")
    with pytest.raises(Refused) as error:
        await world.join()
    assert refused(error) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    await world.beat("a", -1)
    _, ids = await world.stable(1)
    assert GROUP not in world.side().shard.state.consumer
    with pytest.raises(Refused) as error:
        await world.enter("a", "t")
    assert refused(error) == ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(Refused) as error:
        await world.groups.describe_consumer(GROUP)
    assert refused(error) == ErrorCode.GROUP_ID_NOT_FOUND
    await world.leave(*ids)
    await world.enter("a", "t")
    assert GROUP not in world.side().shard.state.classic
    with pytest.raises(Refused) as error:
        await world.groups.describe(GROUP)
    assert refused(error) == ErrorCode.GROUP_ID_NOT_FOUND


@in_world()
async def test_groups_are_described_and_listed_with_their_kind(world: World) -> None:
    topic = world.create_topic("t", 2)
    await world.enter("a", "t", instance_id="one", rack_id="r")
    (listed,) = await world.groups.list()
    assert (listed.group_type, listed.protocol_type, listed.group_state) == ("consumer", "consumer", "Stable")
    described = await world.groups.describe_consumer(GROUP)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)
    assert described.assignor_name == "uniform"
    (member,) = described.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("a", "one", "r", 1)
    assert member.subscribed_topic_names == ["t"]
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name, list(assigned.partitions)) == (topic, "t", [0, 1])
    assert member.assignment == member.target_assignment


@in_world(offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
async def test_an_empty_group_goes_when_its_offsets_have_expired_and_a_live_one_keeps_them(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t")
    await world.commit(1, member_id="a", generation=1)
    for _ in range(10):
        await asyncio.sleep(10)
        await world.beat("a", 1)
    assert await world.fetched() == 1
    await world.beat("a", -1)
    await asyncio.sleep(2)
    assert await world.fetched() is None
    assert await world.groups.list() == []
    assert GROUP not in world.side().shard.state.consumer


@in_world()
async def test_a_group_is_deleted_when_it_is_empty(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t")
    await world.commit(1, member_id="a", generation=1)
    with pytest.raises(Refused) as error:
        await world.groups.delete(GROUP)
    assert refused(error) == ErrorCode.NON_EMPTY_GROUP
    codes = await world.groups.delete_offsets(GROUP, [("t", 0), ("u", 0)])
    assert codes == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): 0}
    await world.beat("a", -1)
    await world.groups.delete(GROUP)
    assert await world.groups.list() == []
    assert await world.fetched() is None


@in_world()
async def test_a_heartbeat_that_cannot_be_written_changes_nothing(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t")
    world.partition_of().refuses = ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(Refused) as error:
        await world.enter("b", "t")
    assert refused(error) == ErrorCode.NOT_COORDINATOR
    assert list(group(world).members) == ["a"]
    # A timeout that cannot be written leaves the member in place, until it can.
    await asyncio.sleep(SESSION_S + 1)
    assert list(group(world).members) == ["a"]
    world.partition_of().refuses = None
    await asyncio.sleep(SESSION_S)
    assert not group(world).members
