"""KIP-848: static members, restarts, offsets, the other protocol, descriptions, refused writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from group_world import GROUP, World, in_world, refused
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


# -- large groups


class Closed(dict[str, Any]):
    """A dict that nobody goes through."""

    def __iter__(self) -> Any:
        raise AssertionError("all members were looked at")

    keys = values = items = __iter__


@in_world()
async def test_a_heartbeat_that_changes_no_member_does_not_go_through_all_of_them(world: World) -> None:
    """Whether there is something to give up, something to take, or nothing."""
    topic = world.create_topic("t", 4)
    await world.enter("a", "t")
    await world.enter("b", "t")
    one = group(world)
    one.members, one.target = Closed(one.members), Closed(one.target)
    told = await world.beat("a", 1)
    kept = given(told)
    assert kept is not None
    assert len(kept[topic]) == 2
    assert (await world.beat("a", 1, owned=kept)).member_epoch == 2
    taken = given(await world.beat("b", 2))
    assert taken is not None
    assert sorted(kept[topic] + taken[topic]) == [0, 1, 2, 3]
    assert given(await world.beat("b", 2)) is None


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
async def test_a_stale_epoch_is_told_in_a_transaction_as_well(world: World) -> None:
    world.create_topic("t", 2)
    await world.enter("a", "t")
    offsets = [("t", 0, 5, -1, None)]
    with pytest.raises(Refused) as error:
        await world.groups.commit_in_transaction(GROUP, "a", 2, None, 7, 0, offsets)
    assert refused(error) == ErrorCode.STALE_MEMBER_EPOCH
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
