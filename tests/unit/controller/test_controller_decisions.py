"""Decisions: what is refused is refused before anything is written; what is written is seen when it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from led_metadata import DIRECTORY, LedMetadata

from semel.config import BrokerConfig
from semel.controller.controller import PRODUCER_ID_BLOCK, Controller, NewTopic
from semel.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from semel.controller.topic_names import wrong_with_name
from semel.log.errors import BrokenLog, Refused
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.sim.loop import run
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import BrokerEndpoint, MetadataRecord, ProducerIdsRecord


class Room:
    """A metadata log and its controller on a simulated disk."""

    def __init__(self, disk: SimDisk, *, was_clean: bool = False) -> None:
        self.disk = disk
        self.told: list[MetadataRecord] = []
        self.broken: list[BaseException] = []
        self.metadata = LedMetadata(disk, listener=self.told.extend, on_broken=self.broken.append, was_clean=was_clean)

    async def open(self) -> None:
        term, clock = await self.metadata.open(), SimClock(asyncio.get_running_loop())  # type: ignore[arg-type]
        self.controller = Controller(term, BrokerConfig({"node.id": "1"}), Random(1), clock)

    async def begin(self) -> None:
        await self.open()
        await self.controller.start_broker(
            [BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)], None, {"metadata.version": 7}
        )


def in_a_room(scenario: Callable[[Room], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        room = Room(SimDisk(1))
        await room.begin()
        await scenario(room)

    run(begin())


def test_a_decision_is_seen_by_deciders_at_once_and_by_everyone_else_when_it_is_durable() -> None:
    async def scenario(room: Room) -> None:
        room.disk.flush_latency_ms = (1000, 1000)
        room.told.clear()
        created = room.controller.create_topic(NewTopic("t"))
        assert created.committed is not None
        assert "t" in room.metadata.decided.topics
        assert "t" not in room.metadata.committed.topics
        with pytest.raises(Refused) as refusal:
            room.controller.create_topic(NewTopic("t"))
        assert refusal.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await asyncio.sleep(0.5)
        assert not room.told
        await created.committed
        assert "t" in room.metadata.committed.topics
        assert room.told
        assert room.metadata.decided == room.metadata.committed

    in_a_room(scenario)


def test_many_decisions_share_few_flushes() -> None:
    async def scenario(room: Room) -> None:
        before = sum(call.kind == "flush" for call in room.disk.log)
        created = [room.controller.create_topic(NewTopic(f"t{number}")).committed for number in range(100)]
        for committed in created:
            assert committed is not None
            await committed
        assert sum(call.kind == "flush" for call in room.disk.log) - before <= 2

    in_a_room(scenario)


def test_a_decision_survives_whole_or_not_at_all() -> None:
    for call in range(1, 20):
        for seed in range(3):
            disk = SimDisk(seed)

            async def before_the_crash(disk: SimDisk = disk, call: int = call) -> bool:
                room = Room(disk)
                await room.begin()
                disk.crash_at(disk.calls + call, "during")
                try:
                    created = room.controller.create_topic(NewTopic("t", 5, configs={"retention.ms": "5"}))
                    assert created.committed is not None
                    await asyncio.wait_for(created.committed, 10)
                except BaseException:
                    return False
                return True

            async def after_the_crash(disk: SimDisk = disk) -> tuple[int, dict[str, str]] | None:
                room = Room(disk)
                await room.open()
                topic = room.metadata.committed.topics.get("t")
                if topic is None:
                    return None
                return len(topic.partitions), dict(room.metadata.committed.config(TOPIC_RESOURCE, "t"))

            was_durable = run(before_the_crash())
            found = run(after_the_crash(disk.after_power_loss()))
            assert found in ((5, {"retention.ms": "5"}), None)
            assert found is not None or not was_durable


@pytest.mark.parametrize(
    ("decide", "code"),
    [
        (lambda c: c.create_topic(NewTopic("t")), ErrorCode.TOPIC_ALREADY_EXISTS),
        (lambda c: c.create_topic(NewTopic("a b")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (lambda c: c.create_topic(NewTopic("__cluster_metadata")), ErrorCode.INVALID_REQUEST),
        (lambda c: c.create_topic(NewTopic("n", 0)), ErrorCode.INVALID_PARTITIONS),
        (lambda c: c.create_topic(NewTopic("n", 100_001)), ErrorCode.INVALID_PARTITIONS),
        (lambda c: c.create_topic(NewTopic("n", 1, 2)), ErrorCode.INVALID_REPLICATION_FACTOR),
        (lambda c: c.create_topic(NewTopic("n", 1, -1, {0: [1]})), ErrorCode.INVALID_REQUEST),
        (lambda c: c.create_topic(NewTopic("n", -1, -1, {1: [1]})), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (lambda c: c.create_topic(NewTopic("n", -1, -1, {0: [1, 2]})), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (lambda c: c.create_topic(NewTopic("n", -1, -1, {0: []})), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (lambda c: c.create_topic(NewTopic("n", configs={"x": "1"})), ErrorCode.INVALID_CONFIG),
        (
            lambda c: c.create_topic(
                NewTopic("n", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"})
            ),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            lambda c: c.create_partitions("nobody", 2, None, validate_only=False),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (lambda c: c.create_partitions("t", 1, None, validate_only=False), ErrorCode.INVALID_PARTITIONS),
        (lambda c: c.create_partitions("t", 2, [], validate_only=False), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            lambda c: c.create_partitions("t", 2, [[1], [1]], validate_only=False),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (lambda c: c.alter_config(TOPIC_RESOURCE, "nobody", []), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda c: c.alter_config(BROKER_RESOURCE, "7", []), ErrorCode.INVALID_REQUEST),
        (lambda c: c.alter_config(99, "", []), ErrorCode.INVALID_REQUEST),
        (lambda c: c.alter_config(TOPIC_RESOURCE, "t", [(0, "segment.bytes", None)]), ErrorCode.INVALID_REQUEST),
        (lambda c: c.alter_config(TOPIC_RESOURCE, "t", [(7, "segment.bytes", "1")]), ErrorCode.INVALID_REQUEST),
        (lambda c: c.alter_config(TOPIC_RESOURCE, "t", [(0, "segment.bytes", "-")]), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_is_refused_writes_nothing(decide: Callable[[Controller], object], code: ErrorCode) -> None:
    async def scenario(room: Room) -> None:
        room.controller.create_topic(NewTopic("t"))
        end_offset, image = room.metadata.next_offset, repr(room.metadata.decided)
        with pytest.raises(Refused) as refusal:
            decide(room.controller)
        assert refusal.value.code == code
        assert refusal.value.text
        assert room.metadata.next_offset == end_offset
        assert repr(room.metadata.decided) == image

    in_a_room(scenario)


def test_what_is_only_validated_writes_nothing() -> None:
    async def scenario(room: Room) -> None:
        room.controller.create_topic(NewTopic("t"))
        end_offset = room.metadata.next_offset
        assert room.controller.create_topic(NewTopic("n", 3), validate_only=True).committed is None
        assert room.controller.create_partitions("t", 3, None, validate_only=True) is None
        changed = room.controller.alter_config(TOPIC_RESOURCE, "t", [(0, "segment.bytes", "1000")], validate_only=True)
        assert changed is None
        assert room.metadata.next_offset == end_offset

    in_a_room(scenario)


def test_a_change_to_what_is_already_so_writes_nothing() -> None:
    async def scenario(room: Room) -> None:
        room.controller.create_topic(NewTopic("t", configs={"segment.bytes": "1000"}))
        end_offset = room.metadata.next_offset
        assert room.controller.alter_config(TOPIC_RESOURCE, "t", [(0, "segment.bytes", " 1000")]) is None
        assert room.controller.alter_config(TOPIC_RESOURCE, "t", [(1, "retention.ms", None)]) is None
        assert room.metadata.next_offset == end_offset

    in_a_room(scenario)


def test_blocks_of_producer_ids_follow_each_other_even_before_they_are_durable() -> None:
    async def scenario(room: Room) -> None:
        blocks = [room.controller.allocate_producer_ids()[0] for _ in range(3)]
        assert [block.start for block in blocks] == [0, PRODUCER_ID_BLOCK, 2 * PRODUCER_ID_BLOCK]
        assert all(len(block) == PRODUCER_ID_BLOCK for block in blocks)

    in_a_room(scenario)


def test_the_last_block_of_producer_ids_is_followed_by_none() -> None:
    async def scenario(room: Room) -> None:
        last = (1 << 63) - 1 - PRODUCER_ID_BLOCK
        await room.metadata.write([ProducerIdsRecord(broker_id=1, next_producer_id=last)])
        block, committed = room.controller.allocate_producer_ids()
        assert block.stop == (1 << 63) - 1
        await committed
        with pytest.raises(Refused, match="used up"):
            room.controller.allocate_producer_ids()

    in_a_room(scenario)


# -- snapshots of the log


def snapshotted() -> SimDisk:
    """A disk after a snapshot at which the log was cut, and one decision more."""
    disk = SimDisk(1)

    async def write() -> None:
        room = Room(disk)
        await room.begin()
        for number in range(5):
            committed = room.controller.create_topic(NewTopic(f"t{number}")).committed
            assert committed is not None
            await committed
        await room.metadata.snapshot()
        committed = room.controller.create_topic(NewTopic("after")).committed
        assert committed is not None
        await committed

    run(write())
    return disk.after_kill()


async def topics_on(disk: SimDisk) -> set[str]:
    room = Room(disk)
    await room.open()
    return set(room.metadata.committed.topics)


def test_the_log_goes_on_from_its_snapshot() -> None:
    for disk in (snapshotted(), snapshotted().after_power_loss()):
        assert run(topics_on(disk)) == {"t0", "t1", "t2", "t3", "t4", "after"}


def test_a_log_whose_snapshot_is_damaged_or_gone_is_not_taken_for_the_whole_history() -> None:
    """Half a history would forget topics and give out producer ids a second time."""
    for damage in ("flipped", "removed"):
        disk = snapshotted()
        (name,) = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".checkpoint")]
        if damage == "flipped":
            disk.flip_bit(f"{DIRECTORY}/{name}", 200, 3)
        else:
            disk.remove(f"{DIRECTORY}/{name}")
        with pytest.raises(BrokenLog, match="no whole snapshot"):
            run(topics_on(disk))


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_power_lost_at_any_disk_call_of_a_snapshot_loses_nothing(when: Any) -> None:
    for call in range(1, 60):
        disk = SimDisk(call)

        async def snapshot(disk: SimDisk = disk, call: int = call) -> bool:
            room = Room(disk)
            await room.begin()
            for number in range(5):
                created = room.controller.create_topic(NewTopic(f"t{number}")).committed
                assert created is not None
                await created
            await room.metadata.snapshot()
            created = room.controller.create_topic(NewTopic("t5")).committed
            assert created is not None
            await created
            disk.crash_at(disk.calls + call, when)
            try:
                await room.metadata.snapshot()
            except BaseException:
                return False
            return True

        is_over = run(snapshot())
        assert run(topics_on(disk.after_power_loss())) == {f"t{number}" for number in range(6)}, call
        if is_over:
            break
    else:
        raise AssertionError("a snapshot has more disk calls than were tried")
    assert call > 5


# -- names


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__consumer_offsets", "0"])
def test_names_that_topics_can_have(name: str) -> None:
    assert wrong_with_name(name, []) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "x" * 250, "a:b", "a\0"])
def test_names_that_no_topic_can_have(name: str) -> None:
    assert wrong_with_name(name, []) is not None


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_b"), ("a_b.c", "a.b_c"), ("_", ".x"), ("a", "b")])
def test_names_that_differ_only_in_dots_and_underscores_collide(name: str, other: str) -> None:
    collides = name.replace(".", "_") == other.replace(".", "_")
    assert (wrong_with_name(name, [other]) is not None) == collides
    assert wrong_with_name(name, [name]) is None
