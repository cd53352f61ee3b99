"""A coordinator that takes over: large logs are read in pieces, and nobody is served before the last."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from group_world import GROUP, World, in_world, refused
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.group.offsets import Committer, OffsetToCommit
from semel.coordinator.shard import Entry
from semel.log.errors import CorruptSegment, Refused
from semel.wire.errors import ErrorCode


async def fill(world: World) -> None:
    """More than is read at once."""
    for number in range(12):
        offsets = [OffsetToCommit("t", index, number, -1, "x" * 100) for index in range(1000)]
        await world.groups.commit(GROUP, Committer(), offsets)
    assert world.partition_of().log.size_bytes > 1 << 20


@in_world()
async def test_while_a_large_log_is_read_everyone_is_asked_to_come_back(world: World) -> None:
    world.create_topic("u", 1)
    await fill(world)
    await world.commit(7, topic="u")
    await world.restart()
    with pytest.raises(Refused) as error:
        await world.fetched("u")
    assert refused(error) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(Refused) as error:
        await world.groups.list()
    assert refused(error) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for _ in range(100):
        await asyncio.sleep(0)
    assert await world.fetched("u") == 7
    assert len(await world.groups.list()) == 1


@in_world()
async def test_a_topic_that_is_deleted_while_the_log_is_read_takes_its_offsets_along(world: World) -> None:
    world.create_topic("u", 1)
    await fill(world)
    await world.commit(7, topic="u")
    await world.restart()
    world.delete_topic("u")
    for _ in range(100):
        await asyncio.sleep(0)
    assert await world.fetched("u") is None
    assert await world.fetched("t") == 11
    # Created anew it keeps what is committed now, over the next start as well.
    world.create_topic("u", 1)
    await world.commit(1, topic="u")
    await world.restart()
    for _ in range(100):
        await asyncio.sleep(0)
    assert await world.fetched("u") == 1


@in_world()
async def test_a_deletion_that_an_earlier_coordinator_did_not_carry_out_is_made_up(world: World) -> None:
    """It was told of it, and lost its term before that was committed: nothing in the log says so."""
    world.create_topic("u", 1)
    await fill(world)
    await world.commit(7, topic="u")
    del world.image.names[world.image.topics.pop("u").topic_id]
    await world.restart()
    for _ in range(100):
        await asyncio.sleep(0)
    assert await world.fetched("u") is None
    assert await world.fetched("t") == 11
    world.create_topic("u", 1)
    await world.restart()
    for _ in range(100):
        await asyncio.sleep(0)
    assert await world.fetched("u") is None, "it is written down"


@in_world()
async def test_a_coordinator_that_is_closed_while_it_loads_stops_loading(world: World) -> None:
    await fill(world)
    await world.restart()
    groups: GroupCoordinator = world.groups
    await asyncio.sleep(0)
    assert groups.shards.is_loading
    await groups.close()
    assert not groups.shards.is_loading
    await world.restart()


@in_world()
async def test_a_record_that_cannot_be_read_does_not_take_the_others_along(world: World) -> None:
    await world.commit(1)
    world.side().shard.append([Entry(b"\x00\x02\x00\x63", b""), Entry(b"", None), Entry(b"\x00\x63", b"future")])
    await world.commit(2, partition=1)
    await world.restart()
    assert await world.fetched() == 1
    assert await world.fetched(partition=1) == 2


@pytest.mark.parametrize("is_large", [False, True])
@in_world()
async def test_a_damaged_log_is_not_served_and_the_others_go_on(world: World, is_large: bool) -> None:
    other = next(name for name in ("a", "b", "c") if world.partition_of(name) is not world.partition_of())
    await world.commit(5, group_id=other)
    await world.commit(5)
    if is_large:
        await fill(world)
    damaged = world.partition_of()
    reads = 0

    def batches() -> Iterator[object]:
        nonlocal reads
        reads += 1
        raise CorruptSegment("path", 0, 0, "planted")
        yield

    damaged.log.batches = batches  # type: ignore[method-assign, assignment]
    await world.restart()
    for _ in range(10):
        await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(Refused) as error:
            await world.fetched()
        assert refused(error) == ErrorCode.NOT_COORDINATOR
    assert reads == 1
    assert await world.fetched(group_id=other) == 5
