"""The log of a node that follows: what is taken, what is not, where it is cut, and where it begins again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from semel.config import BrokerConfig, topic_config
from semel.log.errors import BrokenLog
from semel.log.recovery import load_log
from semel.quorum.replicated_log import ForeignBatches, ReplicatedLog
from semel.quorum.snapshot_files import SnapshotId
from semel.records.build import build_batch
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.sim.loop import run

DIRECTORY = "/data/__cluster_metadata-0"


def opened(disk: SimDisk) -> ReplicatedLog:
    disk.make_dirs("/data")
    disk.sync_dir_now("/")
    config = topic_config({"flush.messages": "1"}, BrokerConfig())
    clock = SimClock(asyncio.get_running_loop())  # type: ignore[arg-type]
    log, _ = load_log(
        disk, DIRECTORY, config, recovery_point=0, start_offset=0, now_ms=clock.wall_ms(), was_clean=False
    )
    return ReplicatedLog(disk, log, clock)


def batch(offset: int, epoch: int, count: int = 1) -> bytes:
    return bytes(
        build_batch([b"v"] * count, base_timestamp_ms=1_700_000_000_000, base_offset=offset, leader_epoch=epoch)
    )


def with_log(scenario: Callable[[ReplicatedLog, SimDisk], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        disk = SimDisk(1)
        log = opened(disk)
        await log.open()
        await scenario(log, disk)

    run(begin())


async def filled(log: ReplicatedLog) -> None:
    """Epoch 1 from 0 to 4, epoch 2 from 5 to 9."""
    log.append(memoryview(batch(0, 1, 5) + batch(5, 2, 5)), 2)


def test_an_empty_log_begins_with_epoch_0() -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        assert (log.end_offset, log.end_epoch, log.committed_end) == (0, 0, -1)

    with_log(scenario)


def test_batches_are_kept_byte_for_byte_and_a_cut_one_is_left() -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        whole = batch(0, 1, 5) + batch(5, 2, 5)
        log.append(memoryview(whole + batch(10, 2)[:-1]), 2)
        assert (log.end_offset, log.end_epoch) == (10, 2)
        assert disk.read_file(f"{DIRECTORY}/{0:020d}.log") == whole

    with_log(scenario)


def test_batches_of_a_later_epoch_than_the_request_are_not_taken() -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        log.append(memoryview(batch(0, 1) + batch(1, 2)), 1)
        assert (log.end_offset, log.end_epoch) == (1, 1)

    with_log(scenario)


@pytest.mark.parametrize(
    "foreign",
    [
        batch(11, 2),  # a gap
        batch(9, 2),  # what is there already
        batch(10, 1),  # an epoch that is over
        batch(10, 2)[:-1] + b"!",  # a bit has changed
        batch(10, 2)[:16] + b"\1" + batch(10, 2)[17:],  # of another form
    ],
)
def test_what_does_not_follow_is_not_taken_and_what_is_before_it_is(foreign: bytes) -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        log.append(memoryview(batch(0, 1, 5)), 2)
        with pytest.raises(ForeignBatches):
            log.append(memoryview(batch(5, 2, 5) + foreign), 2)
        assert (log.end_offset, log.end_epoch) == (10, 2)

    with_log(scenario)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "left"),
    [
        (2, 7, 5),  # inside of a batch: the whole of it goes
        (1, 5, 5),
        (1, 3, 0),
        (1, 9, 5),  # the leader's epoch 1 went on, ours did not
        (0, 0, 0),
    ],
)
def test_the_log_is_cut_where_the_leaders_parts_from_it(epoch: int, end_offset: int, left: int) -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        await filled(log)
        await log.truncate(epoch, end_offset)
        assert log.end_offset == left
        assert log.end_epoch == (1 if left else 0)

    with_log(scenario)


def test_what_is_committed_is_never_cut() -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        await filled(log)
        assert log.commit(7)
        with pytest.raises(BrokenLog, match="was committed"):
            await log.truncate(1, 5)
        assert log.end_offset == 10

    with_log(scenario)


def test_nothing_counts_as_committed_that_is_not_here_and_nothing_goes_back() -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        await filled(log)
        assert log.commit(4)
        assert not log.commit(3)
        assert log.commit(100)
        assert log.committed_end == 10
        assert not log.commit(101)

    with_log(scenario)


def test_a_log_begins_again_behind_a_snapshot_with_its_epoch() -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        await filled(log)
        await log.restart_at(SnapshotId(20, 3))
        assert (log.end_offset, log.end_epoch, log.log.start_offset) == (20, 3, 20)
        log.append(memoryview(batch(20, 3)), 3)
        assert log.end_offset == 21
        with pytest.raises(BrokenLog, match="was committed"):
            await log.truncate(1, 5)

    with_log(scenario)


@pytest.mark.parametrize("snapshot", [SnapshotId(20, 3), SnapshotId(10, 2), SnapshotId(7, 2)])
def test_a_start_goes_on_behind_the_snapshot_that_is_there(snapshot: SnapshotId) -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        await filled(log)
        disk.replace_file_now(f"{DIRECTORY}/{snapshot.name}", b"")
        again = opened(disk)
        await again.open()
        assert again.snapshot == snapshot
        assert again.end_offset == max(10, snapshot.end_offset)
        assert again.committed_end == -1

    with_log(scenario)


def test_a_log_whose_snapshot_is_gone_begins_at_nothing() -> None:
    async def scenario(log: ReplicatedLog, disk: SimDisk) -> None:
        await log.restart_at(SnapshotId(20, 3))
        log.append(memoryview(batch(20, 3)), 3)
        again = opened(disk)
        await again.open()
        assert (again.end_offset, again.log.start_offset) == (0, 0)

    with_log(scenario)
