"""KIP-848: joining, epochs, targets, giving up before taking, static members, timeouts, changes of topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from group_world import GROUP, REBALANCE_MS, World, in_world, refused
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
