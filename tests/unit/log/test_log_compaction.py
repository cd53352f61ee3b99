"""Compaction, rule by rule. The whole of it is compared with brute force in the property tests."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import Any

import pytest
from log_samples import NOW_MS, batch, batches_from, load, mark, new_log, offsets_from, write

from semel.config import BrokerConfig
from semel.log.cleaner import cleanable_segments, compaction_task, dirty_ratio, run_compaction
from semel.log.compaction import CompactionResult
from semel.log.errors import CorruptSegment
from semel.log.log import Log
from semel.records.compression import Codec
from semel.records.control import ControlType
from semel.records.read import Record, read_records
from semel.sim.disk import PowerLost, SimDisk

BROKER = BrokerConfig()
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0,
    "delete_retention_ms": 1000,
    "index_interval_bytes": 60,
}


class InlineJobs:
    async def run(self, function: Any, *args: Any) -> Any:
        return function(*args)

    def close(self) -> None:
        pass


def table(disk: SimDisk | None = None, **overrides: Any) -> Log:
    return new_log(disk, **{**COMPACTED, **overrides})


def put(log: Log, *entries: tuple[str, str | None], **more: Any) -> int:
    """Writes one batch of keys and values; returns its first offset."""
    data = batch(
        *[None if value is None else value.encode() for _, value in entries],
        keys=[key.encode() for key, _ in entries],
        **more,
    )
    return write(log, data).base_offset


async def compact(
    log: Log, *, first_dirty: int = 0, now_ms: int = NOW_MS, config: BrokerConfig = BROKER, rolls: bool = True
) -> CompactionResult | None:
    if rolls:
        log.roll()
    if log.needs_settling:
        await log.settle()
    await log.flush()
    log.high_watermark = log.flushed_offset
    task = compaction_task(log, first_dirty, now_ms, config)
    return None if task is None else await run_compaction(log.disk, InlineJobs(), log, task)


def records(log: Log) -> list[Record]:
    return [r for header, data in batches_from(log, 0) if not header.is_control for r in read_records(data, header)]


def contents(log: Log) -> list[tuple[int, str, str | None]]:
    return [(r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode()) for r in records(log)]


def markers(log: Log) -> list[int]:
    return [header.base_offset for header, _ in batches_from(log, 0) if header.is_control]


async def test_the_newest_value_of_every_key_stays_at_its_offset() -> None:
    log = table()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"), ("c", "1"), ("a", "3"))
    put(log, ("b", "2"), timestamp_ms=NOW_MS + 7)
    result = await compact(log)
    assert contents(log) == [(3, "c", "1"), (4, "a", "3"), (5, "b", "2")]
    assert [r.timestamp_ms for r in records(log)] == [NOW_MS, NOW_MS, NOW_MS + 7]
    assert result is not None
    assert (result.records_before, result.records_after) == (6, 3)
    assert log.end_offset == 6


@pytest.mark.parametrize("codec", list(Codec))
async def test_compressed_batches_are_compacted_and_stay_compressed(codec: Codec) -> None:
    log = table()
    put(log, ("a", "x" * 300), ("b", "y" * 300), codec=codec)
    put(log, ("a", "2"))
    await compact(log)
    (header, _), _ = batches_from(log, 0)
    assert header.codec == codec
    assert contents(log) == [(1, "b", "y" * 300), (2, "a", "2")]


async def test_the_active_segment_is_left_alone() -> None:
    log = table()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll()
    put(log, ("a", "3"))
    await compact(log, rolls=False)
    assert contents(log) == [(1, "a", "2"), (2, "a", "3")]


async def test_a_tombstone_removes_at_once_and_goes_after_its_time() -> None:
    log = table()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None))
    first = await compact(log)
    assert first is not None
    assert contents(log) == [(1, "b", "1"), (2, "a", None)]
    header = batches_from(log, 0)[-1][0]
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + 1000
    assert records(log)[-1].timestamp_ms == NOW_MS
    put(log, ("c", "1"))
    await compact(log, first_dirty=first.end_offset, now_ms=NOW_MS + 999)
    assert [entry[1] for entry in contents(log)] == ["b", "a", "c"]
    put(log, ("d", "1"))
    await compact(log, now_ms=NOW_MS + 1000)
    assert [entry[1] for entry in contents(log)] == ["b", "c", "d"]


async def test_an_aborted_value_never_takes_a_committed_ones_place() -> None:
    log = table()
    put(log, ("a", "committed"))
    put(log, ("a", "aborted"), ("b", "aborted"), producer=1, sequence=0, transactional=True)
    mark(log, ControlType.ABORT, 1)
    put(log, ("z", "1"), producer=1, sequence=2)
    await compact(log)
    assert contents(log) == [(0, "a", "committed"), (4, "z", "1")]


async def test_nor_when_the_marker_stands_in_a_later_segment() -> None:
    log = table()
    put(log, ("a", "committed"))
    put(log, ("a", "aborted"), producer=1, sequence=0, transactional=True)
    log.roll()
    mark(log, ControlType.ABORT, 1)
    put(log, ("z", "1"), producer=1, sequence=1)
    await compact(log, rolls=False)
    assert contents(log) == [(0, "a", "committed"), (3, "z", "1")]


async def test_a_transaction_that_is_still_open_is_left_alone() -> None:
    log = table()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll()
    put(log, ("a", "open"), producer=1, sequence=0, transactional=True)
    log.roll()
    put(log, ("a", "3"))
    await compact(log)
    assert contents(log) == [(1, "a", "2"), (2, "a", "open"), (3, "a", "3")]


async def test_committed_transactions_are_compacted_like_other_data() -> None:
    log = table()
    put(log, ("a", "1"))
    put(log, ("a", "2"), producer=1, sequence=0, transactional=True)
    mark(log, ControlType.COMMIT, 1)
    await compact(log)
    assert contents(log) == [(1, "a", "2")]
    assert markers(log) == [2]


async def test_a_marker_goes_after_its_data_and_then_its_time() -> None:
    log = table()
    put(log, ("a", "1"), producer=1, sequence=0, transactional=True)
    mark(log, ControlType.COMMIT, 1)
    put(log, ("z", "1"), producer=1, sequence=1)
    first = await compact(log)
    assert first is not None
    put(log, ("a", "2"))
    assert markers(log) == [1], "its data is there"
    await compact(log, first_dirty=first.end_offset, now_ms=NOW_MS + 5000)
    assert contents(log) == [(2, "z", "1"), (3, "a", "2")]
    assert markers(log) == [1], "its data went just now"
    put(log, ("b", "1"))
    await compact(log, now_ms=NOW_MS + 6000)
    put(log, ("b", "2"))
    assert markers(log) == [1], "its time began when its data was gone"
    await compact(log, now_ms=NOW_MS + 6999)
    assert markers(log) == [1]
    put(log, ("b", "3"))
    await compact(log, now_ms=NOW_MS + 7000)
    assert markers(log) == []


async def test_the_last_batch_of_a_producer_is_kept_empty_with_its_sequence() -> None:
    disk = SimDisk()
    log = table(disk)
    put(log, ("a", "1"), ("a", "2"), producer=1, sequence=0)
    put(log, ("a", "3"))
    await compact(log)
    assert contents(log) == [(2, "a", "3")]
    header = batches_from(log, 0)[0][0]
    assert (header.base_offset, header.last_offset, header.record_count, header.last_sequence) == (0, 1, 0, 1)
    for name in disk.list_dir(log.directory):
        if name.endswith((".snapshot", ".window")):
            disk.remove(f"{log.directory}/{name}")
    again, _ = load(disk.after_kill(), recovery_point=3, **COMPACTED)
    assert write(again, batch(b"1", b"2", keys=[b"a", b"a"], producer=1, sequence=0)).base_offset == 0
    assert write(again, batch(b"3", keys=[b"a"], producer=1, sequence=2)).base_offset == 3


async def test_an_emptied_transaction_keeps_its_marker_so_that_a_replay_ends_it() -> None:
    disk = SimDisk()
    log = table(disk)
    put(log, ("a", "1"), producer=1, sequence=0, transactional=True)
    mark(log, ControlType.ABORT, 1)
    for number in range(4):
        put(log, ("b", str(number)))
        await compact(log, now_ms=NOW_MS + number * 5000)
    assert [record.key for record in records(log)] == [b"b"]
    assert markers(log) == [1]
    for name in disk.list_dir(log.directory):
        if name.endswith((".snapshot", ".window")):
            disk.remove(f"{log.directory}/{name}")
    again, _ = load(disk.after_kill(), recovery_point=log.end_offset, **COMPACTED)
    assert again.last_stable_offset == again.end_offset


async def test_neighbours_that_fit_are_merged_and_empty_ones_keep_their_place() -> None:
    log = table(segment_bytes=1000)
    for _ in range(12):
        put(log, ("a", "x" * 100))
        log.roll()
    assert len(log.segments) == 13
    await compact(log, rolls=False)
    assert len(log.segments) <= 4
    assert log.segments[0].base_offset == 0
    assert contents(log) == [(11, "a", "x" * 100)]
    assert log.start_offset == 0


async def test_the_dirty_ratio_is_what_was_not_compacted_yet() -> None:
    log = table(min_cleanable_dirty_ratio=0.5)
    for _ in range(4):
        put(log, ("a", "1"))
        log.roll()
    await log.settle()
    log.high_watermark = log.end_offset
    segments = cleanable_segments(log, NOW_MS)
    assert [dirty_ratio(segments, offset) for offset in (0, 1, 2, 3, 4)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert compaction_task(log, 2, NOW_MS, BROKER) is not None
    assert compaction_task(log, 3, NOW_MS, BROKER) is None
    assert compaction_task(log, 4, NOW_MS, BROKER) is None


async def test_a_dirty_segment_that_waited_too_long_is_compacted_whatever_the_ratio() -> None:
    log = table(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=500)
    for _ in range(4):
        put(log, ("a", "1"))
        log.roll()
    await log.settle()
    log.high_watermark = log.end_offset
    assert compaction_task(log, 2, NOW_MS + 500, BROKER) is None
    assert compaction_task(log, 2, NOW_MS + 501, BROKER) is not None


async def test_young_segments_wait_and_those_after_them_too() -> None:
    log = table(min_compaction_lag_ms=500)
    for timestamp in (0, 300, 100):
        put(log, ("a", "1"), timestamp_ms=NOW_MS + timestamp)
        log.roll()
    await log.settle()
    log.high_watermark = log.end_offset
    assert len(cleanable_segments(log, NOW_MS + 499)) == 0
    assert len(cleanable_segments(log, NOW_MS + 700)) == 1
    assert len(cleanable_segments(log, NOW_MS + 800)) == 3


async def test_what_was_sealed_while_others_were_settled_waits() -> None:
    """No snapshot follows it yet, so recovery reads it: gaps in it would be taken for the end of the log."""
    disk = SimDisk()
    log = table(disk)
    for number in range(4):
        put(log, ("a", str(number)))
        put(log, ("a", str(number)), ("b", str(number)))
        log.roll()
        if number == 1:
            await log.settle()
    await log.flush()
    log.high_watermark = log.flushed_offset
    assert [segment.base_offset for segment in cleanable_segments(log, NOW_MS)] == [0, 3]
    assert await compact_as_it_is(log) is not None
    recovered, _ = load(disk.after_power_loss(1), **COMPACTED)
    assert recovered.end_offset == log.flushed_offset == 12


async def compact_as_it_is(log: Log) -> CompactionResult | None:
    task = compaction_task(log, 0, NOW_MS, BROKER)
    return None if task is None else await run_compaction(log.disk, InlineJobs(), log, task)


def test_a_topic_that_only_deletes_is_not_compacted() -> None:
    log = table(cleanup_policy="delete")
    put(log, ("a", "1"))
    log.roll()
    log.high_watermark = log.end_offset
    assert compaction_task(log, 0, NOW_MS, BROKER) is None


async def test_what_does_not_fit_the_map_waits_for_the_next_run() -> None:
    log = table()
    for number in range(6):
        put(log, (f"k{number}", "old"), ("same", str(number)))
        log.roll()
    await log.settle()
    log.high_watermark = log.flushed_offset
    task = compaction_task(log, 0, NOW_MS, BROKER)
    assert task is not None
    result = await run_compaction(log.disk, InlineJobs(), log, replace(task, map_bytes=400))
    assert result is not None
    assert 0 < result.end_offset < log.end_offset
    cleaned = [entry for entry in contents(log) if entry[0] < result.end_offset and entry[1] == "same"]
    assert len(cleaned) == 1
    while result.end_offset < log.end_offset:
        result = await compact(log, first_dirty=result.end_offset, rolls=False)
        assert result is not None
    assert [entry[1] for entry in contents(log)] == ["k0", "k1", "k2", "k3", "k4", "k5", "same"]


async def test_a_full_disk_changes_nothing_and_is_tried_again() -> None:
    disk = SimDisk()
    log = table(disk)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll()
    await log.settle()
    before = contents(log)
    for kind in ("create", "write", "flush", "mkdir"):
        disk.fail_at(kind, 1, errno.ENOSPC)  # type: ignore[arg-type]
        log.high_watermark = log.end_offset
        task = compaction_task(log, 0, NOW_MS, BROKER)
        assert task is not None
        assert await run_compaction(disk, InlineJobs(), log, task) is None
        assert contents(log) == before
        assert not disk.exists(f"{log.directory}/compacting")
    assert await compact(log, rolls=False) is not None
    assert contents(log) == [(1, "a", "2")]


@pytest.mark.parametrize("position", [0, 6, 7, 10, 23, 66])
async def test_damage_is_reported_and_nothing_is_replaced(position: int) -> None:
    disk = SimDisk()
    log = table(disk)
    put(log, ("a", "1"))
    first_bytes = log.size_bytes
    put(log, ("a", "2"))
    log.roll()
    await log.settle()
    disk.flip_bit(log.segments[0].path, first_bytes + position, 1)
    open_files = disk.open_files
    with pytest.raises(CorruptSegment):
        await compact(log, rolls=False)
    assert disk.open_files == open_files
    assert [segment.base_offset for segment in log.segments] == [0, 2]


async def test_a_log_that_was_cut_meanwhile_is_left_as_it_is() -> None:
    log = table()
    for _ in range(3):
        put(log, ("a", "1"))
        log.roll()
    await log.settle()
    log.high_watermark = log.end_offset
    task = compaction_task(log, 0, NOW_MS, BROKER)
    assert task is not None

    class CuttingJobs(InlineJobs):
        async def run(self, function: Any, *args: Any) -> Any:
            result = function(*args)
            log.remove_segments(log.removable_before(1))
            return result

    assert await run_compaction(log.disk, CuttingJobs(), log, task) is None
    assert offsets_from(log, 1) == [1, 2]
    assert not log.disk.exists(f"{log.directory}/compacting")


async def test_readers_are_served_at_every_moment_of_a_swap() -> None:
    disk = SimDisk(flush_latency_ms=(1.0, 1.0))
    log = table(disk, segment_bytes=400)
    for number in range(20):
        put(log, ("a", str(number) * 50))
    log.roll()
    compacting = asyncio.ensure_future(compact(log))
    seen = set()
    while not compacting.done():
        seen.add(len(contents(log)))
        assert contents(log)[-1] == (19, "a", "19" * 50)
        await asyncio.sleep(0)
    assert seen == {20, 1}


async def test_a_swap_that_is_over_does_not_come_back() -> None:
    """Its manifest would move the half-made files of the next compaction into the log."""
    disk = SimDisk()
    log = table(disk)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    await compact(log)
    for seed in range(30):
        names = disk.after_power_loss(seed).list_dir(log.directory)
        assert not [name for name in names if name.endswith(".json")]


def crash_table(disk: SimDisk) -> Log:
    log = table(disk, segment_bytes=400)
    for number in range(10):
        put(log, ("a", str(number) * 50), (f"k{number % 3}", str(number)), producer=1, sequence=2 * number)
    log.roll()
    return log


async def compact_twice(log: Log, stages: list[list[tuple[int, str, str | None]]]) -> None:
    """Notes what the log held after each step."""
    await log.settle()
    await log.flush()
    stages.append(contents(log))
    await compact(log)
    stages.append(contents(log))
    put(log, ("a", "last"))
    stages.append(contents(log))
    await compact(log)
    stages.append(contents(log))


@pytest.mark.parametrize("when", ["before", "during", "after"])
async def test_a_crash_at_any_disk_call_leaves_the_old_log_or_the_new(when: Any) -> None:
    disk = SimDisk(1)
    stages: list[list[tuple[int, str, str | None]]] = []
    log = crash_table(disk)
    begun = disk.calls
    await compact_twice(log, stages)
    assert [len(stage) for stage in stages] == [20, 4, 5, 4]
    for call in range(begun + 1, disk.calls + 1):
        crashed = SimDisk(1)
        log = crash_table(crashed)
        crashed.crash_at(call, when)
        reached: list[list[tuple[int, str, str | None]]] = []
        with pytest.raises(PowerLost):
            await compact_twice(log, reached)
        for seed in range(3):
            again, _ = load(crashed.after_power_loss(call * 10 + seed), segment_bytes=400, **COMPACTED)
            if reached:
                # What was reached last, or what was on its way; and of what was never flushed, nothing or all.
                assert contents(again) in stages[max(0, len(reached) - 2) : len(reached) + 1], (call, seed)
                assert write(again, batch(b"x", keys=[b"x"], producer=1, sequence=20)).base_offset >= 20
            assert not again.disk.exists(f"{again.directory}/compacting")
