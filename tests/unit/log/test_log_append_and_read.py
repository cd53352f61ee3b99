"""Appending, rolling and reading one log, on a disk that does its duty."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from itertools import pairwise
from typing import Any

import pytest
from log_samples import NOW_MS, batch, batches_from, code_of, load, mark, new_log, offsets_from, read, write

from semel.host.api import FileRange
from semel.log.errors import BrokenLog, Refused
from semel.log.log import Cold, Log
from semel.log.segment import Located, Segment
from semel.records.batch import read_header, whole_batches
from semel.records.compact import filter_batch
from semel.records.control import ControlType
from semel.records.read import record_values
from semel.sim.disk import SimDisk
from semel.wire.errors import ErrorCode


def test_batches_get_the_next_offsets_and_the_leaders_epoch() -> None:
    log = new_log()
    assert write(log, batch(b"a", b"b"), leader_epoch=4)[:2] == (0, 1)
    assert write(log, batch(b"c"), leader_epoch=5)[:2] == (2, 2)
    (first, data), (second, _) = batches_from(log, 0)
    assert (first.base_offset, first.partition_leader_epoch, second.base_offset) == (0, 4, 2)
    assert record_values(data) == [b"a", b"b"]
    assert log.epochs.entries == [(4, 0), (5, 2)]


def test_a_log_without_data_has_no_files() -> None:
    disk = SimDisk()
    log = new_log(disk)
    assert read(log, 0) == b""
    assert not disk.exists(log.directory)


def test_a_retried_batch_returns_the_first_offset_and_writes_nothing() -> None:
    log = new_log()
    first = write(log, batch(b"a", b"b", producer=1, sequence=0))
    write(log, batch(b"c", producer=1, sequence=2))
    size = log.size_bytes
    again = write(log, batch(b"a", b"b", producer=1, sequence=0))
    assert (again.base_offset, again.last_offset, again.is_duplicate) == (first.base_offset, first.last_offset, True)
    assert log.size_bytes == size


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    log = new_log()
    for _ in range(5):
        write(log, batch(b"a", b"b", b"c"))
    assert [header.base_offset for _, header in whole_batches(read(log, 7))] == [6, 9, 12]


def test_who_follows_the_end_goes_on_where_the_last_read_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log()
    looked_from = []
    heads = Segment.heads

    def looking(segment: Segment, position: int, *read_bytes: int) -> Iterator[Located]:
        looked_from.append(position)
        return heads(segment, position, *read_bytes)

    for number in range(5):
        write(log, batch(b"a" * 3000, b"b"))
        assert offsets_from(log, 2 * number) == [2 * number]
    monkeypatch.setattr(Segment, "heads", looking)
    end = log.size_bytes
    write(log, batch(b"c"))
    assert offsets_from(log, 10) == [10]
    assert looked_from == [], "it is known where what is new begins, and it was written here"
    end = log.size_bytes
    write(log, batch(b"d", b"e"))
    assert [header.base_offset for _, header in whole_batches(read(log, 11, max_bytes=1))] == [11]
    assert looked_from == [end], "at what is new, and nothing before it, if it is too much"
    for offset in range(10):
        assert offsets_from(log, offset) == [*range(offset // 2 * 2, 11, 2), 11], "others are not led astray"
    log.segments[-1].truncate(end)
    looked_from.clear()
    log.segments[-1].locate(4)
    assert looked_from != [end]


def test_a_follower_goes_on_where_it_was_held_back() -> None:
    log = new_log()
    for _ in range(6):
        write(log, batch(b"a", b"b"))
    for up_to in range(0, 13, 2):
        for offset in range(up_to):
            found = [header.base_offset for _, header in whole_batches(read(log, offset, up_to=up_to))]
            assert found == [*range(offset // 2 * 2, up_to, 2)]
        assert read(log, up_to, up_to=up_to) == b""


def test_a_read_never_passes_the_offset_that_may_be_read() -> None:
    log = new_log()
    for _ in range(5):
        write(log, batch(b"a", b"b"))
    for up_to in range(11):
        whole = [header.next_offset for _, header in whole_batches(read(log, 0, up_to=up_to))]
        assert whole == [end for end in (2, 4, 6, 8, 10) if end <= up_to]
        assert all(read(log, offset, up_to=up_to) == b"" for offset in range(up_to, 11))


def test_a_read_gives_at_least_one_batch_if_asked_to() -> None:
    log = new_log()
    data = batch(b"a" * 100)
    write(log, bytearray(data))
    write(log, bytearray(data))
    assert len(read(log, 0, max_bytes=1)) == len(data)
    assert read(log, 0, max_bytes=1, at_least_one=False) == b""
    assert len(read(log, 0, max_bytes=len(data) + 20)) == len(data) + 20, "the last batch may be cut"


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_an_offset_outside_of_the_log_is_out_of_range(offset: int) -> None:
    log = new_log()
    write(log, batch(b"a", b"b"))
    with pytest.raises(Refused) as refused:
        read(log, offset)
    assert code_of(refused) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read(log, 2) == b""


def test_a_cold_range_is_named_to_be_warmed_first() -> None:
    log = new_log(SimDisk(cold_chance=1.0), segment_bytes=200)
    for _ in range(4):
        write(log, batch(b"a" * 80))
    cold = log.read(0, 1000, 4, at_least_one=True)
    assert isinstance(cold, Cold)
    warmed = log.read(0, 1000, 4, at_least_one=True, warmed=True)
    assert isinstance(warmed, FileRange)
    assert (warmed.file, warmed.position, warmed.length) == cold
    warmed.release()


def test_a_full_segment_is_sealed_and_the_next_begins_at_the_end() -> None:
    log = new_log(segment_bytes=500)
    for _ in range(20):
        write(log, batch(b"a" * 60))
    assert len(log.segments) > 3
    assert all(segment.size_bytes <= 500 for segment in log.segments)
    assert all(left.next_offset == right.base_offset for left, right in pairwise(log.segments))
    assert offsets_from(log, 0) == list(range(20))


def test_an_old_segment_is_sealed_by_the_timestamps_of_its_batches() -> None:
    log = new_log(segment_ms=1000)
    write(log, batch(b"a", timestamp_ms=NOW_MS))
    write(log, batch(b"b", timestamp_ms=NOW_MS + 1000))
    assert len(log.segments) == 1
    write(log, batch(b"c", timestamp_ms=NOW_MS + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_without_room_in_its_index_is_sealed() -> None:
    log = new_log(index_interval_bytes=0, segment_index_bytes=32)
    for _ in range(20):
        write(log, batch(b"a"))
    assert all(segment.offset_index.count <= 4 for segment in log.segments)
    assert len(log.segments) > 3


def test_a_segment_never_spans_more_offsets_than_its_index_can_say() -> None:
    log = new_log()
    write(log, batch(b"a"))
    log.end_offset = 2**31 - 1
    log.segments[-1].next_offset = log.end_offset
    write(log, batch(b"b"))
    write(log, batch(b"c"))
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


def test_records_are_found_by_time() -> None:
    log = new_log(segment_bytes=600)
    for number in range(30):
        write(log, batch(b"a", b"b", timestamps_ms=[NOW_MS + number * 10, NOW_MS + number * 10 + 5], leader_epoch=1))
    for number in range(30):
        for wanted, offset in ((number * 10, 2 * number), (number * 10 + 1, 2 * number + 1)):
            found = log.offset_for_timestamp(NOW_MS + wanted)
            assert found is not None
            assert found.offset == offset
    assert log.offset_for_timestamp(NOW_MS + 296) is None
    assert log.offset_for_timestamp(0).offset == 0  # type: ignore[union-attr]


def test_the_largest_timestamp_need_not_be_the_last() -> None:
    log = new_log(segment_bytes=300)
    for timestamp in (5, 90, 3, 90, 50, 60):
        write(log, batch(b"a" * 100, timestamp_ms=NOW_MS + timestamp))
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW_MS + 90, 1)
    assert new_log().offset_of_max_timestamp() is None


def test_the_largest_timestamp_may_be_a_markers() -> None:
    log = new_log()
    write(log, batch(b"a", producer=1, sequence=0, transactional=True, timestamp_ms=NOW_MS - 50))
    mark(log, ControlType.COMMIT, 1)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW_MS, 1)


def test_records_below_the_start_of_the_log_are_gone_for_every_reader() -> None:
    log = new_log(segment_bytes=300)
    for number in range(12):
        write(log, batch(b"a" * 60, timestamp_ms=NOW_MS + number), leader_epoch=number // 4)
    log.advance_start(7)
    assert log.start_offset == 7
    with pytest.raises(Refused):
        read(log, 6)
    assert offsets_from(log, 7) == list(range(7, 12))
    assert log.offset_for_timestamp(NOW_MS).offset == 7  # type: ignore[union-attr]
    assert log.epochs.entries == [(1, 7), (2, 8)]
    log.advance_start(3)
    assert log.start_offset == 7, "the start never goes back"


def test_removed_segments_stay_readable_for_who_is_reading_them() -> None:
    log = new_log(segment_bytes=300)
    for _ in range(12):
        write(log, batch(b"a" * 60))
    found = log.read(0, 1000, 12, at_least_one=True, warmed=True)
    assert isinstance(found, FileRange)
    before = found.read()
    doomed = log.removable_before(6)
    log.remove_segments(doomed)
    assert log.start_offset == log.segments[0].base_offset > 0
    assert not any(log.disk.exists(segment.path) for segment in doomed)
    assert found.read() == before
    found.release()


async def test_flushing_moves_the_flushed_offset_to_where_the_log_ended_when_it_began() -> None:
    log = new_log()
    write(log, batch(b"a"))
    assert log.is_dirty
    assert log.flushed_offset == 0
    await log.flush()
    assert log.flushed_offset == 1
    assert not log.is_dirty


async def test_two_flushes_at_once_are_a_fault_of_ours() -> None:
    log = new_log()
    write(log, batch(b"a"))
    first = log.flush()
    first.send(None)
    with pytest.raises(BrokenLog):
        await log.flush()
    first.close()


class Over:
    """Is told of the end of a flush that nobody awaits."""

    def __init__(self) -> None:
        self.failure: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def __call__(self, failure: BaseException | None) -> None:
        self.failure.set_result(failure)


async def _flushed_once(disk: SimDisk | None = None) -> Log:
    log = new_log(disk)
    write(log, batch(b"a"))
    await log.flush()
    return log


async def test_a_flush_that_nobody_awaits_promises_what_was_written_before_it() -> None:
    disk = SimDisk(1)
    log, over = await _flushed_once(disk), Over()
    write(log, batch(b"b"))
    assert log.flush_then(over)
    assert log.flushed_offset == 1
    assert not over.failure.done()
    write(log, batch(b"c"))
    assert await over.failure is None
    assert log.flushed_offset == 2
    assert log.is_dirty
    found, _ = load(disk.after_power_loss(1), recovery_point=2)
    assert found.end_offset >= 2


async def test_a_flush_of_more_than_a_file_has_to_be_awaited() -> None:
    log, over = new_log(segment_bytes=300), Over()
    assert not log.flush_then(over), "there is nothing to flush"
    write(log, batch(b"a" * 60))
    assert not log.flush_then(over), "names have to be made durable as well"
    await log.flush()
    while len(log.segments) < 3:
        write(log, batch(b"a" * 60))
    assert not log.flush_then(over), "several segments"
    await log.flush()
    assert log.flushed_offset == log.end_offset
    write(log, batch(b"a"))
    assert log.flush_then(over)
    assert await over.failure is None


async def test_two_flushes_at_once_are_a_fault_of_ours_also_when_nobody_awaits_them() -> None:
    log, over = await _flushed_once(), Over()
    write(log, batch(b"b"))
    assert log.flush_then(over)
    write(log, batch(b"c"))
    with pytest.raises(BrokenLog):
        log.flush_then(Over())
    assert await over.failure is None


async def test_a_flush_that_nobody_awaits_and_that_fails_leaves_what_it_had_to_do_and_is_not_tried_again() -> None:
    disk = SimDisk()
    log, over = await _flushed_once(disk), Over()
    write(log, batch(b"b"))
    disk.fail_at("flush")
    assert log.flush_then(over)
    assert isinstance(await over.failure, OSError)
    assert log.is_dirty
    assert log.flushed_offset == 1
    with pytest.raises(OSError, match="Input/output"):
        log.flush_then(Over())


async def _rest_of(begun: Coroutine[Any, Any, None]) -> None:
    try:
        while True:
            begun.send(None)
    except StopIteration:
        pass


async def test_what_is_written_during_a_flush_is_not_promised_by_it() -> None:
    log = new_log()
    write(log, batch(b"a"))
    flush = log.flush()
    flush.send(None)
    write(log, batch(b"b"))
    await _rest_of(flush)
    assert log.flushed_offset == 1
    assert log.is_dirty


def test_the_last_stable_offset_waits_for_markers_to_be_committed() -> None:
    log = new_log()
    write(log, batch(b"a"))
    write(log, batch(b"b", producer=1, sequence=0, transactional=True))
    write(log, batch(b"c"))
    log.high_watermark = 3
    assert log.last_stable_offset == 1
    mark(log, ControlType.COMMIT, 1)
    assert log.last_stable_offset == 1
    log.high_watermark = 4
    assert log.last_stable_offset == 4


def test_an_emptied_batch_can_hold_the_largest_timestamp() -> None:
    log, _ = load(SimDisk())
    data = batch(b"a", keys=[b"k"], producer=1, sequence=0, timestamp_ms=NOW_MS + 9)
    empty = filter_batch(data, b"\x00", keep_empty=True)
    assert empty is not None
    write(log, batch(b"b", timestamp_ms=NOW_MS))
    log._write(empty, read_header(empty), 0, NOW_MS)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW_MS + 9, 1)
