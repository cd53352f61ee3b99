"""Committed offsets: who may commit them, how transactions hold them back, when they go away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from group_world import GROUP, World, in_world, refused
from semel.coordinator.group.classic_states import ClassicState
from semel.log.errors import Refused
from semel.records.control import ControlType
from semel.wire.errors import ErrorCode

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


# -- committing and fetching


@in_world()
async def test_a_client_without_a_group_commits_and_fetches(world: World) -> None:
    assert await world.fetched() is None
    assert await world.commit(42, metadata="note") == ErrorCode.NONE
    found = await world.groups.fetch_offsets(GROUP, [("t", 0), ("t", 1)], require_stable=True)
    committed = found["t", 0]
    assert committed is not None
    assert not isinstance(committed, ErrorCode)
    assert (committed.offset, committed.metadata) == (42, "note")
    assert found["t", 1] is None
    everything = await world.groups.fetch_offsets(GROUP, None, require_stable=False)
    assert list(everything) == [("t", 0)]


@in_world()
async def test_offsets_outlive_the_coordinator(world: World) -> None:
    await world.commit(42)
    await world.commit(43)
    await world.restart()
    assert await world.fetched() == 43


@in_world()
async def test_a_commit_is_answered_when_it_is_durable_and_so_is_a_fetch_that_sees_it(world: World) -> None:
    partition = world.partition_of()
    partition.is_held = True
    commit = asyncio.ensure_future(world.commit(42))
    await asyncio.sleep(1)
    fetch = asyncio.ensure_future(world.fetched())
    await asyncio.sleep(1)
    assert not commit.done()
    assert not fetch.done()
    partition.let_go()
    assert await commit == 0
    assert await fetch == 42


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
@in_world()
async def test_what_the_log_refuses_is_told_as_a_coordinator_would(
    world: World, refusal: ErrorCode, told: ErrorCode
) -> None:
    await world.commit(1)
    world.partition_of().refuses = refusal
    with pytest.raises(Refused) as error:
        await world.commit(2)
    assert refused(error) == told
    assert await world.fetched() == 1


@in_world(offset_metadata_max_bytes="10")
async def test_metadata_that_is_too_long_is_refused(world: World) -> None:
    assert await world.commit(1, metadata="x" * 10) == 0
    assert await world.commit(2, metadata="x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert await world.fetched() == 1


@in_world()
async def test_members_commit_with_their_generation_and_nobody_else_does(world: World) -> None:
    generation, (leader, _) = await world.stable(2)
    assert await world.commit(1, member_id=leader, generation=generation) == 0
    for options, code in (
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "generation": generation}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": leader, "generation": generation - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": leader, "generation": generation, "instance_id": "one"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(Refused) as error:
            await world.commit(2, **options)
        assert refused(error) == code
    assert await world.fetched() == 1


@in_world()
async def test_a_generation_of_a_group_that_is_not_there_is_refused(world: World) -> None:
    for version, code in ((9, ErrorCode.GROUP_ID_NOT_FOUND), (8, ErrorCode.ILLEGAL_GENERATION)):
        with pytest.raises(Refused) as error:
            await world.commit(2, member_id="one", generation=3, version=version)
        assert refused(error) == code


@in_world()
async def test_nobody_commits_between_join_and_sync_but_everybody_may_while_others_join(world: World) -> None:
    member_id = await world.member_id()
    await world.join(member_id)
    with pytest.raises(Refused) as error:
        await world.commit(2, member_id=member_id, generation=1)
    assert refused(error) == ErrorCode.REBALANCE_IN_PROGRESS
    await world.sync(member_id, 1, {member_id: b"all"})
    joining = asyncio.ensure_future(world.join(await world.member_id()))
    await asyncio.sleep(0)
    assert world.classic().state is ClassicState.PREPARING_REBALANCE
    assert await world.commit(2, member_id=member_id, generation=1) == 0
    joining.cancel()


@in_world()
async def test_an_administrator_may_commit_for_a_group_that_is_empty(world: World) -> None:
    generation, ids = await world.stable(1)
    await world.leave(*ids)
    assert await world.commit(5) == 0
    with pytest.raises(Refused) as error:
        await world.commit(6, member_id=ids[0], generation=generation)
    assert refused(error) == ErrorCode.UNKNOWN_MEMBER_ID


# -- transactions


@in_world()
async def test_offsets_of_a_transaction_count_when_it_is_committed(world: World) -> None:
    await world.commit(1)
    assert await commit_in_transaction(world, 2) == 0
    assert await world.fetched() == 1
    assert await world.fetched(require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(world, ControlType.COMMIT)
    assert await world.fetched(require_stable=True) == 2


@in_world()
async def test_offsets_of_an_aborted_transaction_never_count(world: World) -> None:
    await commit_in_transaction(world, 2)
    end(world, ControlType.ABORT)
    assert await world.fetched(require_stable=True) is None
    assert not world.side().shard.state.pending


@in_world()
async def test_pending_offsets_outlive_the_coordinator(world: World) -> None:
    await commit_in_transaction(world, 2)
    await world.restart()
    assert await world.fetched(require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(world, ControlType.COMMIT)
    await world.restart()
    assert await world.fetched() == 2


@in_world()
async def test_of_a_plain_and_a_transactional_commit_the_later_one_counts(world: World) -> None:
    await commit_in_transaction(world, 2)
    await world.commit(3)
    end(world, ControlType.COMMIT)
    assert await world.fetched() == 3
    await commit_in_transaction(world, 4)
    end(world, ControlType.COMMIT)
    assert await world.fetched() == 4


@in_world()
async def test_a_marker_ends_the_transaction_of_its_own_producer_only(world: World) -> None:
    await commit_in_transaction(world, 2)
    await commit_in_transaction(world, 3, producer=78)
    end(world, ControlType.COMMIT)
    assert await world.fetched(require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(world, ControlType.ABORT, 78)
    assert await world.fetched(require_stable=True) == 2


@in_world()
async def test_a_marker_without_offsets_is_no_harm(world: World) -> None:
    await world.commit(1)
    end(world, ControlType.COMMIT)
    assert await world.fetched() == 1


@in_world()
async def test_a_transaction_is_fenced_by_generation_and_member(world: World) -> None:
    generation, (leader, _) = await world.stable(2)
    assert await commit_in_transaction(world, 1, member_id=leader, generation=generation) == 0
    # A client older than KIP-447 does not say who it is.
    assert await commit_in_transaction(world, 2) == 0
    for options, code in (
        ({"member_id": leader, "generation": generation - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger", "generation": generation}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": leader, "generation": -1}, ErrorCode.ILLEGAL_GENERATION),
        (
            {"member_id": leader, "generation": generation, "instance_id": "one"},
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
    ):
        with pytest.raises(Refused) as error:
            await commit_in_transaction(world, 9, **options)
        assert refused(error) == code
    end(world, ControlType.COMMIT)
    assert await world.fetched() == 2


@in_world()
async def test_a_static_member_that_was_replaced_commits_in_no_transaction(world: World) -> None:
    first = await world.join(instance_id="one")
    await world.sync(first.member_id, 1, {first.member_id: b"mine"})
    await world.join(instance_id="one")
    with pytest.raises(Refused) as error:
        await commit_in_transaction(world, 1, member_id=first.member_id, generation=1, instance_id="one")
    assert refused(error) == ErrorCode.FENCED_INSTANCE_ID


@in_world()
async def test_a_transaction_of_a_group_that_is_not_there_needs_no_generation(world: World) -> None:
    with pytest.raises(Refused) as error:
        await commit_in_transaction(world, 1, member_id="one", generation=1)
    assert refused(error) == ErrorCode.GROUP_ID_NOT_FOUND
    assert await commit_in_transaction(world, 1) == 0


@in_world(offset_metadata_max_bytes="3")
async def test_metadata_of_a_transaction_may_be_too_long_as_well(world: World) -> None:
    assert await commit_in_transaction(world, 1, metadata="long") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not world.side().shard.state.pending
