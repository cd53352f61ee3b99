"""Offset, time and transaction index: Kafka's bytes, and what a search in them finds."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, cycle, islice
from struct import pack

import pytest

from semel.log.indexes import AbortedIndex, AbortedTransaction, OffsetIndex, TimeIndex
from semel.sim.disk import SimDisk

BASE = 1000


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def offset_index(disk: SimDisk, *entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex(disk, "/i.index", BASE, in_memory=True)
    for offset, position in entries:
        index.append(offset, position)
    return index


def time_index(disk: SimDisk, *entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(disk, "/i.timeindex", BASE, in_memory=True)
    for timestamp_ms, offset in entries:
        index.maybe_append(timestamp_ms, offset)
    return index


def test_an_offset_index_has_kafkas_bytes(disk: SimDisk) -> None:
    index = offset_index(disk, (1004, 300), (1009, 700))
    index.seal()
    assert disk.read_file("/i.index") == pack(">iiii", 4, 300, 9, 700)


def test_a_time_index_has_kafkas_bytes(disk: SimDisk) -> None:
    index = time_index(disk, (50, 1004), (60, 1009))
    index.seal()
    assert disk.read_file("/i.timeindex") == pack(">qiqi", 50, 4, 60, 9)


@pytest.mark.parametrize("sealed", [False, True])
def test_the_floor_is_the_newest_batch_that_ends_at_the_offset_or_before(disk: SimDisk, sealed: bool) -> None:
    index = offset_index(disk, (1004, 300), (1009, 700))
    if sealed:
        index.seal()
    assert index.floor(1003) is None
    assert index.floor(1004) == (1004, 300)
    assert index.floor(1008) == (1004, 300)
    assert index.floor(5000) == (1009, 700)
    assert index.before_position(300) is None
    assert index.before_position(301) == (1004, 300)
    assert index.offset_at_or_after(300) == 1004
    assert index.offset_at_or_after(301) == 1009
    assert index.offset_at_or_after(701) is None
    assert index.last() == (1009, 700)


@pytest.mark.parametrize("sealed", [False, True])
def test_the_floor_is_found_among_more_entries_than_are_read_at_once(disk: SimDisk, sealed: bool) -> None:
    count = 3 * 2048 + 5
    index = offset_index(disk, *((BASE + 10 * number, number) for number in range(1, count + 1)))
    if sealed:
        index.seal()
    assert index.floor(BASE + 9) is None
    for number in range(1, count + 1):
        expected = (BASE + 10 * number, number)
        assert (index.floor(BASE + 10 * number), index.floor(BASE + 10 * number + 9)) == (expected, expected)


@pytest.mark.parametrize("gaps", [[1], [1, 1, 1, 1000], [1] * 3000 + [500_000], [500_000] + [1] * 3000])
def test_the_floor_is_found_however_the_entries_are_spread(disk: SimDisk, gaps: list[int]) -> None:
    offsets = list(accumulate(islice(cycle(gaps), 5000), initial=BASE + 3))
    index = offset_index(disk, *((offset, number) for number, offset in enumerate(offsets)))
    index.seal()
    asked = sorted({near for offset in offsets[::7] + offsets[-3:] for near in (offset - 1, offset, offset + 1)})
    for offset in asked:
        number = bisect_right(offsets, offset) - 1
        assert index.floor(offset) == (None if number < 0 else (offsets[number], number))


def test_where_entries_are_spread_evenly_one_read_of_the_file_finds_the_floor(disk: SimDisk) -> None:
    index = offset_index(disk, *((BASE + 64 * number, number) for number in range(1, 16_000)))
    index.seal()
    index.floor(BASE)
    reads: list[int] = []
    disk.reading = lambda path: reads.append(1)  # type: ignore[method-assign, assignment]
    for number in range(1, 16_000, 371):
        reads.clear()
        assert index.floor(BASE + 64 * number + 5) == (BASE + 64 * number, number)
        assert len(reads) == 1


def test_a_time_index_only_grows(disk: SimDisk) -> None:
    index = time_index(disk, (50, 1004), (50, 1005), (40, 1006), (-1, 1007), (51, 1008))
    assert index.count == 2
    assert index.last() == (51, 1008)


def test_batches_before_the_floor_of_a_timestamp_are_older(disk: SimDisk) -> None:
    index = time_index(disk, (50, 1004), (60, 1009))
    assert index.floor_offset(50) == BASE
    assert index.floor_offset(51) == 1004
    assert index.floor_offset(60) == 1004
    assert index.floor_offset(61) == 1009


def test_a_sealed_index_takes_nothing_more(disk: SimDisk) -> None:
    index = offset_index(disk, (1004, 300))
    index.seal()
    with pytest.raises(ValueError, match="sealed"):
        index.append(1009, 700)


def test_an_index_written_twice_is_written_on_not_again(disk: SimDisk) -> None:
    index = offset_index(disk, (1004, 300))
    index.write_out()
    index.append(1009, 700)
    index.write_out()
    index.write_out()
    assert disk.read_file("/i.index") == pack(">iiii", 4, 300, 9, 700)
    again = OffsetIndex(disk, "/i.index", BASE, in_memory=True)
    again.append(1012, 900)
    again.seal()
    assert disk.read_file("/i.index") == pack(">iiiiii", 4, 300, 9, 700, 12, 900)


def test_half_an_entry_is_seen(disk: SimDisk) -> None:
    offset_index(disk, (1004, 300)).seal()
    disk.open("/i.index").truncate(7)
    assert not OffsetIndex(disk, "/i.index", BASE, in_memory=False).is_whole


def test_a_cleared_index_is_empty_in_its_file_too(disk: SimDisk) -> None:
    offset_index(disk, (1004, 300)).seal()
    index = OffsetIndex(disk, "/i.index", BASE, in_memory=False)
    index.clear()
    assert index.count == 0
    assert disk.read_file("/i.index") == b""


def test_a_transaction_index_has_kafkas_bytes_and_no_file_without_entries(disk: SimDisk) -> None:
    index = AbortedIndex(disk, "/i.txnindex")
    index.write_out()
    assert not disk.exists("/i.txnindex")
    index.append(AbortedTransaction(7, 10, 20, 21))
    index.write_out()
    index.append(AbortedTransaction(8, 12, 25, 26))
    index.write_out()
    assert disk.read_file("/i.txnindex") == pack(">hqqqqhqqqq", 0, 7, 10, 20, 21, 0, 8, 12, 25, 26)
    again = AbortedIndex(disk, "/i.txnindex")
    assert again.entries() == [AbortedTransaction(7, 10, 20, 21), AbortedTransaction(8, 12, 25, 26)]
    assert again.is_whole
