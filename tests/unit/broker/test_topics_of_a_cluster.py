"""What a node does with its replicas when the metadata change: leads, follows, keeps, deletes; and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from replica_world import HERE, ID, OTHER_ID, B, C, PlayedFollower, ReplicaWorld, replicated

from semel.broker.topics import Topics
from semel.log.errors import Refused
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

NOBODY = -1


@replicated()
async def test_one_log_lives_through_all_terms(world: ReplicaWorld) -> None:
    world.make()
    first = world.led()
    world.append(b"a")
    log, group_commit = first.log, first.group_commit
    world.change(leader=B)
    (follower,) = world.followers.begun
    assert first.is_closed
    assert (follower.log, follower.group_commit) == (log, group_commit)
    assert (follower.leader_id, follower.leader_epoch) == (B, 1)
    assert world.refusal() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.change(leader=C)
    assert world.followers.begun[0].ended == ["not fetched for any more", "resigned"]
    assert [(one.leader_id, one.leader_epoch) for one in world.followers.open] == [(C, 2)]
    world.change(leader=NOBODY)
    assert world.followers.open == []
    assert world.refusal() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.change(leader=HERE)
    last = world.led()
    assert (last.log, last.group_commit, last.leader_epoch) == (log, group_commit, 4)
    assert last.log.epochs.entries == [(0, 0), (4, 1)]
    assert len(world.store.logs) == 1


@replicated()
async def test_what_was_being_flushed_counts_for_the_term_that_follows(world: ReplicaWorld) -> None:
    world.make(isr=(HERE,), replicas=(HERE, B))
    last = world.append(b"a")
    await asyncio.sleep(0)
    world.change(leader=B, isr=[HERE, B])
    world.change(leader=HERE, isr=[HERE])
    committed = world.led().when_committed(last)
    assert committed is not None
    await committed


@replicated()
async def test_an_isr_that_changes_within_the_term_changes_nothing_else(world: ReplicaWorld) -> None:
    world.make()
    term = world.led()
    world.change(isr=[HERE, B])
    assert world.led() is term
    assert term.replicas is not None
    assert term.replicas.in_sync.isr == (HERE, B)
    follower = PlayedFollower(world, B)
    await follower.fetch({0: 0}, wait_ms=0)
    world.change(replicas=[HERE, B])
    assert list(term.replicas.in_sync.followers) == [B]


@replicated()
async def test_the_next_epoch_of_the_same_leader_ends_waiting_and_keeps_what_is_known(world: ReplicaWorld) -> None:
    world.make()
    committed = world.led().when_committed(world.append(b"a"), 10_000)
    follower = PlayedFollower(world, B)
    await follower.fetch({0: 0}, wait_ms=0)
    await follower.fetch({0: 1}, wait_ms=0)
    world.change(leader=HERE)
    assert committed is not None
    with pytest.raises(Refused) as refusal:
        await committed
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    replicas = world.led().replicas
    assert replicas is not None
    assert replicas.in_sync.followers[B].end_offset == 1


@replicated()
async def test_a_replica_that_is_assigned_elsewhere_is_deleted_and_can_come_back(world: ReplicaWorld) -> None:
    world.make(partitions=2)
    world.append(b"a")
    world.append(b"b", index=1)
    world.change(0, replicas=[B, C], isr=[B, C], leader=B)
    world.change(1, leader=B)
    await asyncio.sleep(0.1)
    assert [key[1] for key in world.store.logs] == [1]
    assert not world.host.disk.exists("/data/t-0")
    assert world.refusal() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.change(1, replicas=[B, C], isr=[B, C])
    assert [one.ended for one in world.followers.begun] == [["not fetched for any more", "abandoned"]]
    world.change(0, replicas=[B, C, HERE])
    (follower,) = world.followers.open
    assert (follower.index, follower.log.end_offset) == (0, 0)


@replicated()
async def test_a_topic_made_again_has_nothing_of_the_old_one(world: ReplicaWorld) -> None:
    """68"""
    world.make()
    old = world.led()
    world.append(b"a")
    await asyncio.sleep(0.1)
    world.tell(
        RemoveTopicRecord(topic_id=ID),
        TopicRecord(name="t", topic_id=OTHER_ID),
        PartitionRecord(
            topic_id=OTHER_ID, replicas=[HERE, B], isr=[HERE, B], leader=B, leader_epoch=0, partition_epoch=0
        ),
    )
    assert old.is_closed
    assert ID not in world.topics.by_id
    (follower,) = world.followers.open
    assert follower.log is not old.log
    assert follower.log.end_offset == 0


@replicated()
async def test_deletions_come_first_then_leaders_then_followers(world: ReplicaWorld) -> None:
    world.make("gone", OTHER_ID)
    world.make(partitions=3, leader=NOBODY)
    done: list[str] = []
    remove, load, begin = world.store.remove, world.store.load, world.followers.begin

    def noted_remove(topic: str, index: int) -> None:
        done.append(f"deleted {topic}-{index}")
        remove(topic, index)

    def noted_load(topic: str, index: int, *others: Any, **options: Any) -> Any:
        done.append(f"opened {topic}-{index}")
        return load(topic, index, *others, **options)

    def noted_begin(topic: str, topic_id: bytes, index: int, *others: Any) -> Any:
        done.append(f"followed {topic}-{index}")
        return begin(topic, topic_id, index, *others)

    world.store.remove, world.store.load, world.followers.begin = noted_remove, noted_load, noted_begin  # type: ignore
    world.tell(
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=B),
        PartitionChangeRecord(partition_id=1, topic_id=ID, leader=HERE),
        PartitionChangeRecord(partition_id=2, topic_id=ID, leader=HERE),
        RemoveTopicRecord(topic_id=OTHER_ID),
    )
    assert done == ["deleted gone-0", "opened t-1", "opened t-2", "opened t-0", "followed t-0"]
    world.store.remove = remove  # type: ignore[method-assign]


@replicated()
async def test_many_partitions_are_opened_in_slices_and_what_is_over_ends_at_once(world: ReplicaWorld) -> None:
    world.make("old", OTHER_ID)
    opened_at: list[float] = []
    load, clock = world.store.load, world.host.clock
    now_ms = clock.monotonic_ms

    def slow_load(*arguments: Any, **options: Any) -> Any:
        opened_at.append(asyncio.get_running_loop().time())
        return load(*arguments, **options)

    world.store.load = slow_load  # type: ignore[method-assign]
    clock.monotonic_ms = lambda: now_ms() + len(opened_at)  # type: ignore[method-assign]  # each takes a millisecond
    made = [
        PartitionRecord(
            partition_id=index,
            topic_id=ID,
            replicas=[HERE, B, C],
            isr=[HERE],
            leader=HERE,
            leader_epoch=0,
            partition_epoch=0,
        )
        for index in range(100)
    ]
    world.tell(
        TopicRecord(name="t", topic_id=ID),
        *made,
        PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID, leader=B),
    )
    assert len(opened_at) == 3
    assert world.refusal(0, "old") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.led(97).leader_epoch == 0, "it is opened when it is asked for"
    assert len(opened_at) == 4
    world.change(98, leader=B)
    await world.topics.when_open()
    assert len(world.topics.online()) == 99
    assert [(one.topic, one.index) for one in world.followers.open] == [("old", 0), ("t", 98)]
    await world.topics.when_open()


@replicated()
async def test_a_replica_that_cannot_be_opened_is_offline_whoever_leads(world: ReplicaWorld) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise OSError(5, "planted")

    load = world.store.load
    world.store.load = broken  # type: ignore[method-assign]
    world.make(leader=B)
    assert world.topics.offline_node("t", 0) == HERE
    world.change(leader=HERE)
    assert world.refusal() == ErrorCode.KAFKA_STORAGE_ERROR
    world.store.load = load  # type: ignore[method-assign]


@replicated()
async def test_an_image_that_is_another_as_a_whole_is_followed(world: ReplicaWorld) -> None:
    world.make("gone", OTHER_ID)
    world.make(partitions=2, leader=B)
    world.tell()
    del world.image.topics["gone"]
    del world.image.names[OTHER_ID]
    world.image.replay(PartitionChangeRecord(partition_id=1, topic_id=ID, leader=HERE))
    world.topics.follow_image()
    assert list(world.topics.by_name) == ["t"]
    assert isinstance(world.led(1), Partition)
    assert [(one.index, one.leader_epoch) for one in world.followers.open] == [(0, 0)]


@replicated(replica_high_watermark_checkpoint_interval_ms="100")
async def test_after_a_start_a_log_is_committed_as_far_as_was_noted_and_no_further(world: ReplicaWorld) -> None:
    world.store.start_upkeep()
    world.make()
    for value in (b"a", b"b"):
        world.append(value)
        await asyncio.sleep(0.1)
        if value == b"a":
            for node_id in (B, C):
                follower = PlayedFollower(world, node_id)
                await follower.fetch({0: 1}, wait_ms=0)
    await asyncio.sleep(0.2)
    assert (world.led().log.end_offset, world.led().log.high_watermark) == (2, 1)
    text = world.host.disk.read_file("/data/replication-offset-checkpoint")
    assert text == b"0\n1\nt 0 1\n"
    await world.end()
    world.sim.kill("here")
    world.begin()
    world.make()
    assert (world.led().log.end_offset, world.led().log.high_watermark) == (2, 1)
    world.make("single", OTHER_ID, replicas=(HERE,), isr=(HERE,))
    world.append(b"c", topic="single")
    await asyncio.sleep(0.1)
    assert world.led(0, "single").log.high_watermark == 1
    assert world.led(0, "single").replicas is None


def test_a_node_alone_notes_no_high_watermarks() -> None:
    """It asks for none: a log without other replicas is committed as far as it goes."""
    assert Topics.__init__.__kwdefaults__["leading"] is None
