"""One partition on its leader: the high watermark, who waits for it, and what a reader may see."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from semel.config import BrokerConfig, topic_config
from semel.host.api import FileRange
from semel.log.errors import BrokenLog, Refused
from semel.log.recovery import load_log
from semel.records.build import build_batch
from semel.records.control import ControlType
from semel.replication.partition import Partition
from semel.sim.clock import WALL_START_MS, SimClock
from semel.sim.disk import SimDisk
from semel.sim.loop import run
from semel.wire.errors import ErrorCode


class Room:
    """A partition on a simulated disk whose flushes take a second."""

    def __init__(self, leader_epoch: int = 0, disk: SimDisk | None = None, **overrides: str) -> None:
        self.disk = disk or SimDisk(1, flush_latency_ms=(1000, 1000))
        self.broken: list[BaseException] = []
        self.disk.make_dirs("/data")
        config = topic_config({"flush.messages": "1", **overrides}, BrokerConfig({}))
        log, _ = load_log(
            self.disk, "/data/t-0", config, recovery_point=0, start_offset=0, now_ms=WALL_START_MS, was_clean=False
        )
        clock = SimClock(asyncio.get_running_loop())
        self.partition = Partition("t", b"\x01" * 16, 0, log, leader_epoch, clock, self.broken.append)

    def append(self, *values: bytes, producer_id: int = -1, sequence: int = -1) -> int:
        """Appends, and returns the last offset."""
        batch = build_batch(
            list(values),
            base_timestamp_ms=WALL_START_MS,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
        )
        return self.partition.append(self.partition.validate(batch), -1).last_offset

    def flushes(self) -> int:
        return sum(call.kind == "flush" and call.path.endswith(".log") for call in self.disk.log)


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def in_virtual_time() -> None:
        run(test())

    in_virtual_time.__name__ = test.__name__
    return in_virtual_time


@simulated
async def test_the_high_watermark_is_the_flushed_offset() -> None:
    room = Room()
    last = room.append(b"a", b"b")
    log = room.partition.log
    assert (log.end_offset, log.high_watermark) == (2, 0)
    committed = room.partition.when_committed(last)
    assert committed is not None
    await committed
    assert log.high_watermark == log.flushed_offset == 2
    assert room.partition.when_committed(last) is None


@simulated
async def test_each_flush_serves_all_that_came_before_it() -> None:
    room = Room()
    waits = [room.partition.when_committed(room.append(b"first"))]
    await asyncio.sleep(0.5)
    waits += [room.partition.when_committed(room.append(b"%d" % number)) for number in range(50)]
    for committed in waits:
        assert committed is not None
        await committed
    assert room.flushes() == 2


@simulated
async def test_waiters_are_woken_in_the_order_of_their_offsets() -> None:
    room = Room()
    partition = room.partition
    woken: list[int] = []

    def wait_for(offset: int) -> None:
        committed = partition.when_committed(offset)
        assert committed is not None
        committed.add_done_callback(lambda _: woken.append(offset))

    first = room.append(b"a", producer_id=5, sequence=0)
    wait_for(first)
    await asyncio.sleep(3.5)  # the names and the first batch are durable, or nearly
    second = room.append(b"b")
    third = room.append(b"c", producer_id=5, sequence=1)
    wait_for(third)
    wait_for(second)
    duplicate = room.append(b"c", producer_id=5, sequence=1)
    assert duplicate == third
    wait_for(duplicate)
    await asyncio.sleep(20)
    assert woken == [first, second, third, third]


@simulated
async def test_with_another_flush_interval_everything_appended_may_be_read() -> None:
    room = Room(**{"flush.messages": "10"})
    last = room.append(b"a")
    assert room.partition.when_committed(last) is None
    await asyncio.sleep(100)
    assert room.flushes() == 0
    for _ in range(9):
        room.append(b"b")
    await asyncio.sleep(100)
    assert room.partition.log.flushed_offset == 10


@simulated
async def test_a_background_flush_does_not_go_on_as_long_as_there_are_writes() -> None:
    room = Room(**{"flush.messages": "10"})
    for _ in range(100):
        room.append(b"x")
        await asyncio.sleep(0.5)
    assert 5 <= room.flushes() <= 10


@simulated
async def test_a_failed_flush_is_final() -> None:
    room = Room()
    room.disk.fail_at("flush")
    committed = room.partition.when_committed(room.append(b"a"))
    assert committed is not None
    await asyncio.sleep(60)
    assert isinstance(room.broken[0], OSError)
    assert not committed.done()
    assert room.partition.log.high_watermark == 0


@simulated
async def test_watchers_are_woken_when_there_is_more_to_read_and_not_before() -> None:
    room = Room()
    woken: list[int] = []
    room.partition.watch("me", lambda: woken.append(room.partition.log.high_watermark))
    room.append(b"a")
    await asyncio.sleep(0.5)
    assert woken == []
    await asyncio.sleep(10)
    assert woken == [1]
    room.partition.unwatch("me")
    room.append(b"b")
    await asyncio.sleep(10)
    assert woken == [1]


@simulated
async def test_a_watcher_may_leave_while_all_are_woken() -> None:
    room = Room()
    woken: list[str] = []

    def wake_and_leave(name: str) -> None:
        woken.append(name)
        room.partition.unwatch("a")
        room.partition.unwatch("b")

    room.partition.watch("a", lambda: wake_and_leave("a"))
    room.partition.watch("b", lambda: wake_and_leave("b"))
    room.partition.wake_watchers()
    assert woken[0] == "a"


@simulated
async def test_a_partition_that_is_given_up_refuses_those_who_wait() -> None:
    room = Room()
    committed = room.partition.when_committed(room.append(b"a"))
    woken: list[bool] = []
    room.partition.watch("me", lambda: woken.append(True))
    room.partition.abandon()
    assert committed is not None
    with pytest.raises(Refused) as refusal:
        await committed
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert woken == [True]
    await asyncio.sleep(10)
    assert not room.broken


@simulated
async def test_closing_waits_for_the_flush_that_is_under_way() -> None:
    room = Room()
    room.append(b"a")
    await asyncio.sleep(0.1)
    await room.partition.close()
    assert room.partition.log.flushed_offset == 1
    assert not room.partition.group_commit.is_flushing
    assert not room.broken


@simulated
async def test_epochs_of_readers_are_checked() -> None:
    room = Room(leader_epoch=3)
    partition = room.partition
    partition.check_epoch(-1)
    partition.check_epoch(3)
    for epoch, code in ((2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(Refused) as refusal:
            partition.check_epoch(epoch)
        assert refusal.value.code == code


@simulated
async def test_a_reader_gets_what_is_committed_and_no_more() -> None:
    room = Room()
    room.append(b"a")
    await asyncio.sleep(10)
    room.append(b"b")
    fetched = room.partition.fetch(0, 1 << 20, read_committed=False, at_least_one=True)
    assert isinstance(fetched.records, FileRange)
    assert fetched.high_watermark == 1
    one = len(fetched.records)
    fetched.records.release()
    await asyncio.sleep(10)
    fetched = room.partition.fetch(0, 1 << 20, read_committed=False, at_least_one=True)
    assert isinstance(fetched.records, FileRange)
    assert len(fetched.records) == 2 * one
    fetched.records.release()


@simulated
async def test_where_logs_part_is_told_by_epoch() -> None:
    disk = SimDisk(1)
    room = Room(leader_epoch=2, disk=disk)
    room.append(b"a", b"b")
    await asyncio.sleep(1)
    room.partition.leader_epoch = 5
    room.append(b"c")
    await asyncio.sleep(1)
    partition = room.partition

    def parts_at(offset: int, epoch: int) -> tuple[int, int] | None:
        fetched = partition.fetch(offset, 100, read_committed=False, at_least_one=False, last_fetched_epoch=epoch)
        return fetched.diverging

    assert parts_at(2, 2) is None
    assert parts_at(3, 5) is None
    assert parts_at(3, 2) == (2, 2), "it read one record more in epoch 2 than there is"
    assert parts_at(3, 4) == (2, 2), "epoch 4 was never here"
    with pytest.raises(Refused) as refusal:
        parts_at(3, 6)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@simulated
async def test_records_are_deleted_up_to_the_high_watermark_only() -> None:
    room = Room()
    room.append(b"a", b"b")
    await asyncio.sleep(10)
    room.append(b"c")
    partition = room.partition
    for offset in (3, -2, 1 << 60):
        with pytest.raises(Refused) as refusal:
            partition.delete_before(offset)
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_before(1) == 1
    assert partition.delete_before(0) == 1
    assert partition.delete_before(-1) == 2
    assert partition.log.start_offset == 2


@simulated
async def test_a_close_is_not_told_to_those_who_no_longer_wait() -> None:
    """A connection that has gone leaves its future behind: Python would complain that nobody looked at its error."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    room = Room()
    assert room.partition.when_committed(room.append(b"a")) is not None
    room.partition.abandon()
    gc.collect()
    assert complaints == []


@simulated
async def test_a_write_that_can_neither_be_done_nor_undone_ends_the_node_whoever_asked_for_it() -> None:
    """A marker is written by a task of the node itself: nobody else would notice."""

    def write_marker(room: Room) -> None:
        room.partition.append_marker(ControlType.COMMIT, 1, 0, 0, bumps_epoch=False)

    def write_prepared(room: Room) -> None:
        room.partition.append_prepared(build_batch([b"b"], base_timestamp_ms=WALL_START_MS))

    for write in (write_marker, write_prepared, lambda room: room.append(b"b")):
        room = Room()
        room.append(b"a", producer_id=1, sequence=0)
        room.disk.fail_at("write")
        room.disk.fail_at("truncate")
        with pytest.raises(BrokenLog):
            write(room)
        assert [type(error) for error in room.broken] == [BrokenLog]
