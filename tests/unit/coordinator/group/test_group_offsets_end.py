"""How committed offsets go away: deleted by hand, with their group, with their topic, by age; and what is shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from group_world import GROUP, SESSION_MS, World, in_world, refused, subscription
from semel.log.errors import Refused
from semel.records.control import ControlType
from semel.wire.errors import ErrorCode

DAY_S = 24 * 3600
WEEK_S = 7 * DAY_S
PRODUCER = 77


async def commit_in_transaction(world: World, offset: int, *, producer: int = PRODUCER, **options: Any) -> Any:
    who = {"member_id": "", "generation": -1, "instance_id": None, **options}
    codes = await world.groups.commit_in_transaction(
        GROUP,
        who["member_id"],
        who["generation"],
        who["instance_id"],
        producer,
        0,
        [("t", 0, offset, -1, who.get("metadata", ""))],
    )
    return codes["t", 0]


def end(world: World, kind: ControlType, producer: int = PRODUCER) -> None:
    world.side().shard.append_marker(kind, producer, 0, 0, bumps_epoch=False)


# -- deleting


@in_world()
async def test_offsets_of_topics_that_members_read_cannot_be_deleted(world: World) -> None:
    generation, (leader, _) = await world.stable(2)
    await world.commit(1, member_id=leader, generation=generation)
    await world.commit(1, topic="old", member_id=leader, generation=generation)
    codes = await world.groups.delete_offsets(GROUP, [("t", 0), ("old", 0), ("old", 1)])
    assert codes == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("old", 0): 0, ("old", 1): 0}
    assert await world.fetched() == 1
    assert await world.fetched("old") is None


@in_world()
async def test_offsets_of_a_group_whose_members_are_no_consumers_cannot_be_deleted(world: World) -> None:
    await world.stable(1, protocol_type="connect", protocols={"x": b"y"})
    with pytest.raises(Refused) as error:
        await world.groups.delete_offsets(GROUP, [("t", 0)])
    assert refused(error) == ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(Refused) as error:
        await world.groups.delete_offsets("nowhere", [("t", 0)])
    assert refused(error) == ErrorCode.GROUP_ID_NOT_FOUND


@in_world()
async def test_a_deleted_offset_is_gone_from_open_transactions_too(world: World) -> None:
    await world.commit(1)
    await commit_in_transaction(world, 2)
    assert await world.groups.delete_offsets(GROUP, [("t", 0)]) == {("t", 0): 0}
    end(world, ControlType.COMMIT)
    assert await world.fetched() is None


@in_world()
async def test_an_empty_group_is_deleted_with_its_offsets_and_one_with_members_is_not(world: World) -> None:
    generation, ids = await world.stable(1)
    await world.commit(1, member_id=ids[0], generation=generation)
    with pytest.raises(Refused) as error:
        await world.groups.delete(GROUP)
    assert refused(error) == ErrorCode.NON_EMPTY_GROUP
    await world.leave(*ids)
    await world.groups.delete(GROUP)
    assert await world.fetched() is None
    assert await world.groups.list() == []
    with pytest.raises(Refused) as error:
        await world.groups.delete(GROUP)
    assert refused(error) == ErrorCode.GROUP_ID_NOT_FOUND
    await world.restart()
    assert await world.groups.list() == []


@in_world()
async def test_a_group_that_has_only_offsets_is_listed_described_and_deleted(world: World) -> None:
    await world.commit(1)
    (listed,) = await world.groups.list()
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        GROUP,
        "",
        "Empty",
        "classic",
    )
    assert (await world.groups.describe(GROUP)).group_state == "Empty"
    await world.groups.delete(GROUP)
    assert await world.groups.list() == []


@in_world()
async def test_offsets_go_with_their_topic(world: World) -> None:
    world.create_topic("t", 1)
    await world.commit(1)
    await world.commit(1, topic="u")
    await commit_in_transaction(world, 2)
    world.delete_topic("t")
    assert await world.fetched() is None
    assert await world.fetched("u") == 1
    end(world, ControlType.COMMIT)
    assert await world.fetched() is None


# -- expiring


@in_world()
async def test_offsets_without_a_group_expire_a_week_after_their_commit(world: World) -> None:
    await world.commit(1)
    await asyncio.sleep(WEEK_S - 60)
    assert await world.fetched() == 1
    await asyncio.sleep(700)
    assert await world.fetched() is None
    assert await world.groups.list() == []


@in_world()
async def test_offsets_of_a_group_expire_a_week_after_it_lost_its_last_member(world: World) -> None:
    generation, (member_id,) = await world.stable(1, session_ms=1_800_000)
    await world.commit(1, member_id=member_id, generation=generation)
    for _ in range(600):
        await asyncio.sleep(1700)
        await world.heartbeat(member_id, generation)
    assert await world.fetched() == 1
    await world.leave(member_id)
    await asyncio.sleep(WEEK_S - 60)
    assert await world.fetched() == 1
    await asyncio.sleep(700)
    assert await world.fetched() is None
    assert await world.groups.list() == []
    assert not world.side().shard.state.classic


@in_world()
async def test_members_keep_the_offsets_of_what_they_read_and_lose_those_of_other_topics(world: World) -> None:
    generation, (member_id,) = await world.stable(1, session_ms=1_800_000)
    await world.commit(1, member_id=member_id, generation=generation)
    await world.commit(1, topic="old", member_id=member_id, generation=generation)
    for _ in range(400):
        await asyncio.sleep(1700)
        await world.heartbeat(member_id, generation)
    assert await world.fetched() == 1
    assert await world.fetched("old") is None


@in_world()
async def test_an_old_client_may_ask_for_a_shorter_life(world: World) -> None:
    await world.commit(1, retention_ms=60_000)
    await world.commit(1, partition=1)
    await asyncio.sleep(601)
    assert await world.fetched() is None
    assert await world.fetched(partition=1) == 1


@in_world()
async def test_an_offset_that_a_transaction_may_change_does_not_expire(world: World) -> None:
    await world.commit(1)
    await commit_in_transaction(world, 2)
    await asyncio.sleep(2 * WEEK_S)
    assert await world.fetched() == 1
    end(world, ControlType.ABORT)
    await asyncio.sleep(700)
    assert await world.fetched() is None


@in_world(offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
async def test_retention_and_its_check_follow_their_settings(world: World) -> None:
    await world.commit(1)
    await asyncio.sleep(59)
    assert await world.fetched() == 1
    await asyncio.sleep(3)
    assert await world.fetched() is None


@pytest.mark.parametrize("days", [10, -10])
@in_world(offsets_retention_check_interval_ms="60000")
async def test_no_offset_expires_because_the_wall_clock_was_set(world: World, days: int) -> None:
    await world.commit(1)
    world.clock.jump_wall(days * DAY_S * 1000)
    await world.commit(2, partition=1)
    await asyncio.sleep(WEEK_S - 3600)
    assert (await world.fetched(), await world.fetched(partition=1)) == (1, 2)
    await asyncio.sleep(2 * 3600)
    assert await world.fetched(partition=1) is None
    assert await world.fetched() == (None if days > 0 else 1), "what was stamped by a clock ahead stays longer"


@in_world(offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
async def test_an_empty_group_without_offsets_goes_with_the_next_check(world: World) -> None:
    _, ids = await world.stable(1)
    await world.leave(*ids)
    assert len(await world.groups.list()) == 1
    await asyncio.sleep(2)
    assert await world.groups.list() == []
    assert not world.side().shard.state.classic


@in_world(offsets_retention_check_interval_ms="1000")
async def test_a_check_that_cannot_write_is_made_again(world: World) -> None:
    await world.commit(1, retention_ms=1)
    world.partition_of().refuses = ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(10)
    assert await world.fetched() == 1
    world.partition_of().refuses = None
    await asyncio.sleep(2)
    assert await world.fetched() is None


# -- looking


@in_world()
async def test_groups_are_described_with_their_members_once_they_are_stable(world: World) -> None:
    ids = [await world.member_id(client="reader") for _ in range(2)]
    joins = [asyncio.ensure_future(world.join(one, client="reader")) for one in ids]
    await asyncio.sleep(0)
    described = await world.groups.describe(GROUP)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in described.members] == [b"", b""]
    leader = (await joins[0]).leader
    await joins[1]
    await world.assign(1, [leader, *(one for one in ids if one != leader)])
    described = await world.groups.describe(GROUP)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert {member.member_id: member.member_assignment for member in described.members} == {
        one: one.encode() for one in ids
    }
    assert {member.member_metadata for member in described.members} == {subscription("t")}
    assert {(member.client_id, member.client_host) for member in described.members} == {("reader", "/127.0.0.1")}
    await asyncio.sleep(SESSION_MS / 1000 + 1)
    assert (await world.groups.describe(GROUP)).group_state == "Empty"
    with pytest.raises(Refused) as error:
        await world.groups.describe("nowhere")
    assert refused(error) == ErrorCode.GROUP_ID_NOT_FOUND


@in_world(offsets_retention_check_interval_ms="60000")
async def test_a_group_whose_last_offset_was_deleted_is_there_until_it_is_deleted_or_cleaned_up(world: World) -> None:
    """As in Kafka: who takes its offsets away one by one, and then the group, finds it."""
    for end_of_it in ("deleted", "cleaned up"):
        await world.commit(1)
        assert await world.groups.delete_offsets(GROUP, [("t", 0)]) == {("t", 0): 0}
        assert [(one.group_id, one.group_state) for one in await world.groups.list()] == [(GROUP, "Empty")]
        assert (await world.groups.describe(GROUP)).group_state == "Empty"
        assert await world.groups.delete_offsets(GROUP, [("t", 0)]) == {("t", 0): 0}
        if end_of_it == "deleted":
            await world.groups.delete(GROUP)
        else:
            await asyncio.sleep(61)
        assert await world.groups.list() == []
        with pytest.raises(Refused) as error:
            await world.groups.delete(GROUP)
        assert refused(error) == ErrorCode.GROUP_ID_NOT_FOUND
