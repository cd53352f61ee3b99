"""A log that is cut at its end, or emptied, is as if the rest had never been written."""

from __future__ import annotations

import asyncio
import errno

import pytest
from follower_samples import assert_alike, assert_finds, catch_up, follower_log
from log_samples import NOW_MS, batch, batches_from, load, mark, new_log, offsets_from, read, write
from test_log_following import busy_leader
from test_log_store import Stand

from semel.log.checkpoints import LOG_STARTS, RECOVERY_POINTS, read_checkpoint
from semel.log.errors import BrokenLog
from semel.log.following import append_as_follower
from semel.log.log import Log
from semel.log.snapshots import read_snapshot, snapshot_offsets
from semel.log.truncation import finish_cut_now, restart_at, truncate_to
from semel.records.control import ControlType
from semel.sim.disk import SimDisk


def part_of(leader: Log, offset: int, **overrides: object) -> Log:
    """A log with all batches of another that end before an offset."""
    made = follower_log(SimDisk(3), **overrides)
    data = b"".join(data for header, data in batches_from(leader, 0) if header.last_offset < offset)
    while data:
        data = data[append_as_follower(made, memoryview(data), 1 << 20, NOW_MS) :]
    return made


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("offset", range(70))
async def test_a_cut_log_is_what_it_was_at_that_offset(offset: int, is_settled: bool) -> None:
    leader, disk = busy_leader(), SimDisk(9)
    log = follower_log(disk, segment_bytes=700)
    catch_up(log, leader)
    await log.flush()
    log.high_watermark = log.end_offset
    if is_settled:
        await log.settle()
    assert await truncate_to(log, offset, NOW_MS)
    expected = part_of(leader, offset, segment_bytes=700)
    assert log.flushed_offset == log.high_watermark == log.end_offset <= offset
    assert_alike(log, expected)
    assert_finds(log)
    assert not log.has_unsynced_cut
    for found in snapshot_offsets(disk.list_dir(log.directory)):
        assert found <= log.end_offset
    catch_up(log, leader)
    assert_alike(log, leader)
    assert_finds(log)
    await log.flush()
    await log.settle()
    restarted, _ = load(disk.after_power_loss(offset), segment_bytes=700)
    assert_alike(restarted, leader)
    assert_finds(restarted)


@pytest.mark.parametrize("offset", range(3, 66, 7))
async def test_another_history_goes_on_where_a_log_was_cut(offset: int) -> None:
    leader, disk = busy_leader(), SimDisk(9)
    log = follower_log(disk, segment_bytes=700)
    catch_up(log, leader)
    await log.settle()
    other = part_of(leader, offset, segment_bytes=700)
    for number in range(8):
        entry = other.producers.entry(1)
        sequence = 0 if entry is None else entry.last_sequence + 1
        write(other, batch(b"other %d" % number, producer=1, sequence=sequence), leader_epoch=20)
    mark(other, ControlType.ABORT, 2, coordinator_epoch=6)
    await truncate_to(log, offset, NOW_MS)
    catch_up(log, other)
    assert_alike(log, other)
    await log.flush()
    assert_alike(load(disk.after_power_loss(offset), segment_bytes=700)[0], other)


async def test_a_log_without_producers_is_cut_without_a_look_at_the_whole_segment() -> None:
    disk = SimDisk(9)
    log = new_log(disk)
    for _ in range(100):
        write(log, batch(b"x" * 100))
    reads: list[int] = []
    file = log.segments[0].file
    read_at = file.read_at
    file.read_at = lambda position, length: (reads.append(length), read_at(position, length))[1]  # type: ignore[method-assign]
    await truncate_to(log, 90, NOW_MS)
    assert log.end_offset == 90
    assert sum(reads) < 100 * 180


async def test_a_term_that_is_over_cuts_nothing() -> None:
    leader, disk = busy_leader(), SimDisk(9)
    log = follower_log(disk, segment_bytes=700)
    catch_up(log, leader)
    assert not await truncate_to(log, 10, NOW_MS, lambda: False)
    assert not await restart_at(log, 10, lambda: False)
    assert_alike(log, leader)


async def test_a_cut_waits_for_the_flush_under_way_so_that_nothing_cut_counts_as_flushed() -> None:
    disk = SimDisk(9, flush_latency_ms=(5, 5))
    log = new_log(disk)
    for _ in range(10):
        write(log, batch())
    flush = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    await truncate_to(log, 4, NOW_MS)
    assert flush.done()
    assert (log.flushed_offset, log.end_offset) == (4, 4)


async def test_who_appends_before_a_cut_is_durable_makes_it_durable_first() -> None:
    disk = SimDisk(9, flush_latency_ms=(5, 5))
    log = new_log(disk)
    for _ in range(10):
        write(log, batch())
    cut = asyncio.ensure_future(truncate_to(log, 4, NOW_MS))
    while not log.has_unsynced_cut:  # noqa: ASYNC110
        await asyncio.sleep(0)
    calls = disk.calls
    append_as_follower(log, memoryview(bytes(read_of_one(4))), 9, NOW_MS)
    assert [call.kind for call in disk.log][calls:] == ["flush", "sync_dir", "write"]
    await cut
    assert log.end_offset == 5


def read_of_one(offset: int) -> bytes:
    other = new_log(start_offset=offset)
    write(other, batch(b"new"))
    return read(other, offset)


async def test_a_cut_that_cannot_be_made_durable_ends_the_node() -> None:
    disk = SimDisk(9)
    log = new_log(disk)
    for _ in range(10):
        write(log, batch())
    disk.fail_at("flush", times=5)
    with pytest.raises(OSError):
        await truncate_to(log, 4, NOW_MS)
    with pytest.raises(BrokenLog):
        finish_cut_now(log)


async def test_a_cut_that_finds_no_descriptor_is_made_durable_when_there_is_one() -> None:
    disk = SimDisk(9)
    log = new_log(disk)
    for _ in range(10):
        write(log, batch())
    disk.fail_at("sync_dir", error_number=errno.EMFILE, times=2)
    await truncate_to(log, 4, NOW_MS)
    assert not log.has_unsynced_cut
    assert log.end_offset == 4


async def test_a_file_that_cannot_be_cut_ends_the_node() -> None:
    disk = SimDisk(9)
    log = new_log(disk)
    for _ in range(10):
        write(log, batch())
    disk.fail_at("truncate")
    with pytest.raises(BrokenLog):
        await truncate_to(log, 4, NOW_MS)


@pytest.mark.parametrize("offset", [0, 40, 1000])
async def test_a_log_that_begins_again_holds_nothing(offset: int) -> None:
    leader, disk = busy_leader(), SimDisk(9)
    log = follower_log(disk, segment_bytes=700)
    catch_up(log, leader)
    await log.settle()
    await log.flush()
    await restart_at(log, offset)
    assert (log.start_offset, log.end_offset, log.flushed_offset, log.high_watermark) == (offset,) * 4
    assert (len(log.producers), log.epochs.entries, log.segments) == (0, [], [])
    other = new_log(start_offset=offset)
    for number in range(5):
        write(other, batch(b"new", producer=7, sequence=number), leader_epoch=30)
    catch_up(log, other)
    assert_alike(log, other)
    await log.flush()
    restarted, _ = load(disk.after_power_loss(1), segment_bytes=700, start_offset=offset)
    assert_alike(restarted, other)


async def test_the_checkpoints_say_less_before_anything_is_cut() -> None:
    stand = Stand(SimDisk())
    stand.open()
    log = stand.load()
    for _ in range(10):
        write(log, batch())
    await log.flush()
    await stand.store.checkpoint()
    points: list[dict[tuple[str, int], int]] = []
    checkpoint = f"{stand.store.root}/{RECOVERY_POINTS}"

    async def checkpoints_go_on() -> None:
        while True:
            await stand.store.checkpoint()
            points.append(read_checkpoint(stand.disk, checkpoint))
            await asyncio.sleep(0)

    going_on = asyncio.ensure_future(checkpoints_go_on())
    seen: list[int] = []

    def is_wanted() -> bool:
        seen.append(next(iter(read_checkpoint(stand.disk, checkpoint).values())))
        return True

    await truncate_to(log, 4, NOW_MS, is_wanted)
    going_on.cancel()
    assert seen[-1] == 4
    await stand.store.checkpoint()
    assert set(read_checkpoint(stand.disk, checkpoint).values()) == {4}


async def test_a_log_that_begins_earlier_again_says_so_before_it_is_emptied() -> None:
    stand = Stand(SimDisk())
    stand.open()
    log = stand.load()
    for _ in range(10):
        write(log, batch())
    await log.flush()
    log.high_watermark = log.end_offset
    log.advance_start(8)
    await stand.store.checkpoint()
    await restart_at(log, 3)
    assert set(read_checkpoint(stand.disk, f"{stand.store.root}/{LOG_STARTS}").values()) == {3}
    assert not read_checkpoint(stand.disk, f"{stand.store.root}/{RECOVERY_POINTS}")
    await restart_at(log, 0)
    assert not read_checkpoint(stand.disk, f"{stand.store.root}/{LOG_STARTS}")


async def test_an_epoch_that_wrote_nothing_is_forgotten_with_the_rest() -> None:
    log = new_log()
    write(log, batch(), leader_epoch=3)
    log.epochs.assign(4, log.end_offset)
    await truncate_to(log, 1, NOW_MS)
    assert log.epochs.entries == [(3, 0)]
    assert offsets_from(log, 0) == [0]


async def test_epochs_of_an_older_cut_in_the_file_do_not_hide_those_of_the_batches() -> None:
    """The file was written before the cut, and what is appended after it carries smaller epochs."""
    disk = SimDisk(9)
    log = new_log(disk)
    write(log, batch(), leader_epoch=1)
    write(log, batch(), leader_epoch=4)
    log.close()
    log, _ = load(disk, clean=True)
    await truncate_to(log, 1, NOW_MS)
    for epoch in (3, 6):
        write(log, batch(), leader_epoch=epoch)
    await log.flush()
    assert load(disk.after_power_loss(1))[0].epochs.entries == [(1, 0), (3, 1), (6, 2)]


async def test_segments_that_were_not_settled_before_a_cut_get_their_snapshot_after_it() -> None:
    leader, disk = busy_leader(), SimDisk(9)
    log = follower_log(disk, segment_bytes=700)
    catch_up(log, leader)
    await truncate_to(log, 40, NOW_MS)
    assert log.needs_settling
    await log.settle()
    base_offset = log.segments[-1].base_offset
    assert 0 < base_offset < 40
    assert snapshot_offsets(disk.list_dir(log.directory)) == [base_offset]
    assert read_snapshot(disk, log.directory, base_offset) == part_of(leader, base_offset).producers.rows()
