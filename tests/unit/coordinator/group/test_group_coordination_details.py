"""Small print of the groups: who leads after a leave, who may commit to an empty group, what waits for the disk."""

from __future__ import annotations

import asyncio

import pytest

from group_world import GROUP, World, in_world, refused
from semel.coordinator.group.classic_states import ClassicState
from semel.coordinator.group.offsets import Committer, OffsetToCommit
from semel.coordinator.group.pattern_syntax import BadPattern
from semel.coordinator.group.topic_patterns import TopicPattern
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode


@in_world()
async def test_when_the_leader_leaves_another_member_leads_and_otherwise_it_stays(world: World) -> None:
    _, (leader, second, third) = await world.stable(3)
    assert world.classic().leader == leader
    await world.leave(second)
    assert world.classic().leader == leader
    await world.leave(leader)
    assert world.classic().leader == third


@in_world()
async def test_a_group_that_was_deleted_is_dead_to_whoever_still_holds_it(world: World) -> None:
    _, (member,) = await world.stable(1)
    group = world.classic()
    await world.leave(member)
    assert group.state is ClassicState.EMPTY
    await world.groups.delete(GROUP)
    assert group.state is ClassicState.DEAD


@in_world()
async def test_a_delete_is_answered_when_it_is_durable(world: World) -> None:
    await world.commit(5)
    partition = world.partition_of()
    partition.is_held = True
    deleting = asyncio.ensure_future(world.groups.delete(GROUP))
    await asyncio.sleep(1)
    assert not deleting.done()
    partition.let_go()
    await deleting
    assert await world.fetched() is None


@in_world()
async def test_a_generation_of_an_empty_group_is_refused_also_if_it_is_the_first_number(world: World) -> None:
    _, (member,) = await world.stable(1)
    await world.leave(member)
    assert await world.commit(1) == 0, "without a generation: not by a member"
    with pytest.raises(Refused) as error:
        await world.commit(2, generation=0, member_id=member)
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.fetched() == 1


@in_world()
async def test_offsets_that_come_without_a_retention_stay_as_long_as_the_node_says(world: World) -> None:
    codes = await world.groups.commit(GROUP, Committer(), [OffsetToCommit("t", 0, 7, -1, "")])
    assert codes == {("t", 0): 0}
    await asyncio.sleep(24 * 3600)
    assert await world.fetched() == 7


@in_world()
async def test_a_member_with_a_pattern_gets_its_share_of_topics_that_others_read_by_name(world: World) -> None:
    """The topics of the group stay the same; that somebody else wants them is a change all the same."""
    topic_id = world.create_topic("orders", 2)
    first = await world.enter("a", "orders")
    second = await world.enter("b", subscribed_topic_regex="ord.*")
    assert second.member_epoch > first.member_epoch
    told = await world.beat("a", first.member_epoch, owned={topic_id: [0, 1]})
    assert told.assignment is not None
    assert [len(part.partitions) for part in told.assignment.topic_partitions] == [1]


def test_the_largest_patterns_are_served_and_one_more_state_is_refused() -> None:
    assert TopicPattern("a{900}").matches("a" * 900)
    with pytest.raises(BadPattern):
        TopicPattern("a{1001}")
