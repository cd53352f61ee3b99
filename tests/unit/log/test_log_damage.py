"""Bits that flip in old segments: reported with file, position and offset, never served; their neighbours are."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from log_samples import NOW_MS, batch, load, new_log, read, write

from semel.log.errors import BrokenLog, CorruptSegment, DataMissing, Refused
from semel.log.log import Log
from semel.records.batch import whole_batches
from semel.sim.disk import SimDisk
from semel.wire.errors import ErrorCode

COUNT = 40
HURT = 13


def stopped_disk(**overrides: object) -> tuple[SimDisk, dict[int, tuple[str, int, int]]]:
    """A log that was stopped cleanly, and where each of its batches stands: file, position, size."""
    disk = SimDisk()
    log = new_log(disk, segment_bytes=2000, **overrides)
    places = {}
    for number in range(COUNT):
        offset = write(log, batch(b"%04d" % number * 12, b"second")).base_offset
        segment = log.segments[-1]
        size = segment.size_bytes - segment.locate(offset).position  # type: ignore[union-attr]
        places[offset] = (segment.path, segment.size_bytes - size, size)
    log.close()
    return disk, places


def restarted(disk: SimDisk) -> Log:
    log, recovered = load(disk.after_kill(), clean=True, recovery_point=2 * COUNT, segment_bytes=2000)
    assert recovered.scanned_bytes == 0
    assert log.end_offset == 2 * COUNT
    return log


def served(log: Log, offset: int) -> int | None:
    """The base offset of the batch that a reader of `offset` gets; None when it is told of damage."""
    try:
        data = read(log, offset, max_bytes=1)
    except CorruptSegment:
        return None
    (_, header), *_ = whole_batches(data)
    return header.base_offset


@pytest.mark.parametrize("position", [17, 21, 30, 45, 55, 61, 70, 100])
def test_a_flipped_bit_is_reported_and_its_neighbours_are_served(position: int) -> None:
    disk, places = stopped_disk()
    path, at, _ = places[2 * HURT]
    disk.flip_bit(path, at + position, 3)
    log = restarted(disk)
    with pytest.raises(CorruptSegment) as damage:
        read(log, 2 * HURT)
    assert (damage.value.path, damage.value.position, damage.value.offset) == (path, at, 2 * HURT)
    assert str(damage.value).startswith(f"{path} is corrupt at byte {at} (offset {2 * HURT})")
    assert [served(log, 2 * n) for n in range(COUNT) if n != HURT] == [2 * n for n in range(COUNT) if n != HURT]


def test_no_flipped_bit_anywhere_in_a_batch_is_served() -> None:
    disk, places = stopped_disk()
    path, at, size = places[2 * HURT]
    # All bits of the offset, which no CRC covers; not the leader epoch, for which nothing in the log vouches.
    flips = [(position, bit) for position in range(8) for bit in range(8)]
    flips += [(position, position * 3 % 8) for position in range(8, size) if not 12 <= position < 16]
    for position, bit in flips:
        disk.flip_bit(path, at + position, bit)
        log = restarted(disk)
        assert served(log, 2 * HURT) is None, f"byte {position} of the batch"
        assert served(log, 2 * HURT - 2) == 2 * HURT - 2, f"byte {position} of the batch"
        assert served(log, 2 * HURT - 4) == 2 * HURT - 4
        assert served(log, 2 * HURT + 8) == 2 * HURT + 8, "found by the index, behind the damage"
        disk = log.disk  # type: ignore[assignment]
        disk.flip_bit(path, at + position, bit)


def log_of_two_segments(disk: SimDisk, **overrides: Any) -> Log:
    """One record a batch, each a millisecond later than the one before."""
    log = new_log(disk, segment_bytes=2000, **overrides)
    while len(log.segments) < 2:
        write(log, batch(b"%04d" % log.end_offset * 12, timestamp_ms=NOW_MS + log.end_offset))
    return log


@pytest.mark.parametrize("position", [16, 57])
def test_a_batch_that_an_index_leads_to_and_that_cannot_be_read_is_told_in_words(position: int) -> None:
    """The newest timestamp of a segment is held against its batch at a start. Its magic or its number of records is
    damaged: where the next batch begins cannot be told for sure, and so the partition is not served, and no more."""
    disk = SimDisk()
    log = log_of_two_segments(disk)
    last = log.segments[0].locate(log.segments[1].base_offset - 1)
    assert last is not None
    log.close()
    disk.flip_bit(log.segments[0].path, last.position + position, 7)
    with pytest.raises(BrokenLog, match=f"corrupt at byte {last.position} .* the batch after it cannot be found"):
        load(disk.after_kill(), clean=True, recovery_point=log.end_offset, segment_bytes=2000)


def test_an_index_that_was_made_of_a_damaged_segment_is_forgotten_when_the_segment_is_mended() -> None:
    disk = SimDisk()
    log = log_of_two_segments(disk)
    path, newest = log.segments[0].path, log.segments[1].base_offset - 1
    last = log.segments[0].locate(newest)
    assert last is not None
    log.close()
    last_offset_delta_end = last.position + 26
    disk.flip_bit(path, last_offset_delta_end, 7)
    damaged = load(disk.after_kill(), clean=True, recovery_point=log.end_offset, segment_bytes=2000)[0]
    assert damaged.segments[0].max_timestamp_ms < NOW_MS + newest
    damaged.close()
    mended = damaged.disk.after_kill()
    mended.flip_bit(path, last_offset_delta_end, 7)
    again = load(mended, clean=True, recovery_point=log.end_offset, segment_bytes=2000)[0]
    found = again.offset_for_timestamp(NOW_MS + newest)
    assert found is not None
    assert found.offset == newest


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("place", range(8))
def test_no_flipped_bit_in_an_index_leads_a_reader_past_a_batch(place: int, bit: int) -> None:
    """Of a sealed segment of a node that runs: it has written the index itself, and reads it back from the disk."""
    disk = SimDisk()
    log = log_of_two_segments(disk, index_interval_bytes=1)
    index, end = log.segments[0].offset_index, log.segments[1].base_offset
    disk.flip_bit(index.path, index.count // 2 * index.entry.size + place, bit)
    for offset in range(end):
        found = log.segments[0].locate(offset)
        assert found is not None
        assert found.base_offset == offset


def test_a_large_read_ends_before_the_damage() -> None:
    disk, places = stopped_disk()
    path, at, _ = places[2 * HURT]
    disk.flip_bit(path, at + 90, 0)
    log = restarted(disk)
    start = log.segments[log.segment_number(2 * HURT)].base_offset
    assert [header.base_offset for _, header in whole_batches(read(log, start))] == list(range(start, 2 * HURT, 2))


def test_what_was_checked_once_is_not_checked_again() -> None:
    disk, _ = stopped_disk()
    log = restarted(disk)
    read(log, 0)
    segment = log.segments[0]
    assert segment.is_trusted(0, segment.size_bytes)
    assert not log.segments[1].is_trusted(0, 10)


def test_damage_below_the_recovery_point_is_not_cut_and_nothing_is_served() -> None:
    disk = SimDisk()
    log = new_log(disk)
    for number in range(10):
        write(log, batch(b"%d" % number))
    found, path = log.segments[0].locate(4), log.segments[0].path
    assert found is not None
    disk.flip_bit(path, found.position + 66, 1)
    content = disk.content_of(path)
    disk = disk.after_kill()
    with pytest.raises(DataMissing, match=rf"corrupt at byte {found.position} .* all below offset 10 was durable"):
        load(disk, recovery_point=10)
    assert disk.content_of(path) == content


def test_damage_above_the_recovery_point_is_a_torn_tail() -> None:
    disk = SimDisk()
    log = new_log(disk)
    for number in range(10):
        write(log, batch(b"%d" % number))
    position = log.segments[0].locate(4).position  # type: ignore[union-attr]
    disk.flip_bit(log.segments[0].path, position + 66, 1)
    log, recovered = load(disk.after_kill(), recovery_point=3)
    assert log.end_offset == 4
    assert recovered.cut_bytes > 0


@pytest.mark.parametrize(
    "what", [CorruptSegment("/a/b.log", 7, 9, "torn"), Refused(ErrorCode.KAFKA_STORAGE_ERROR, "full")]
)
def test_errors_come_back_from_another_process_as_they_were(what: Exception) -> None:
    back = pickle.loads(pickle.dumps(what))
    assert type(back) is type(what)
    assert (str(back), vars(back)) == (str(what), vars(what))
