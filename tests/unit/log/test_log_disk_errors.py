"""A disk that refuses: appends are refused with it, the log stays as it was and goes on when the disk does."""

from __future__ import annotations

import errno

import pytest
from log_samples import batch, code_of, load, mark, new_log, offsets_from, write

from semel.log.errors import Refused
from semel.log.log import Log
from semel.records.control import ControlType
from semel.sim.disk import SimDisk
from semel.sim.loop import run
from semel.wire.errors import ErrorCode


def state(log: Log) -> tuple[object, ...]:
    return (
        log.end_offset,
        log.size_bytes,
        log.producers.rows(),
        log.producers.oldest_open_offset(),
        [segment.base_offset for segment in log.segments],
        list(log.epochs.entries),
        offsets_from(log, log.start_offset),
    )


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
def test_a_refused_write_leaves_the_log_as_it_was_and_usable(error_number: int) -> None:
    disk = SimDisk(5)
    log = new_log(disk)
    write(log, batch(b"a" * 100, producer=1, sequence=0))
    before = state(log)
    for _ in range(5):
        disk.fail_at("write", 1, error_number)
        with pytest.raises(Refused) as refused:
            write(log, batch(b"b" * 300, producer=1, sequence=1, transactional=True), leader_epoch=3)
        assert code_of(refused) is ErrorCode.KAFKA_STORAGE_ERROR
        assert state(log) == before
        assert disk.open(log.segments[0].path).size() == log.size_bytes, "nothing is left of it in the file"
    write(log, batch(b"c", producer=1, sequence=1))
    assert offsets_from(log, 0) == [0, 1]
    again, _ = load(disk.after_kill())
    assert offsets_from(again, 0) == [0, 1]


def test_a_full_disk_refuses_until_there_is_room() -> None:
    disk = SimDisk()
    log = new_log(disk, segment_bytes=1000)
    disk.fill_after(2500)
    written = 0
    while disk.free_bytes("/") > 300:
        write(log, batch(b"a" * 100, producer=1, sequence=written))
        written += 1
    assert written > 5
    before = state(log)
    for _ in range(3):
        with pytest.raises(Refused) as refused:
            write(log, batch(b"a" * 400, producer=1, sequence=written))
        assert code_of(refused) is ErrorCode.KAFKA_STORAGE_ERROR
        assert state(log) == before
    disk.fill_after(1 << 20)
    for number in range(written, written + 20):
        write(log, batch(b"a" * 100, producer=1, sequence=number))
    again, recovered = load(disk.after_kill(), segment_bytes=1000)
    assert offsets_from(again, 0) == list(range(written + 20))
    assert recovered.cut_bytes == 0


@pytest.mark.parametrize(("kind", "nth"), [("create", 1), ("write", 1), ("write", 2), ("create", 2), ("create", 3)])
def test_a_roll_that_fails_at_any_step_leaves_the_log_as_it_was_and_usable(kind: str, nth: int) -> None:
    disk = SimDisk(3)
    log = new_log(disk, segment_bytes=700)
    rolls = 0
    number = 0
    while rolls < 3:
        data = batch(b"a" * 100, producer=1, sequence=number)
        if log.segments and log.segments[-1].size_bytes + len(data) > 700:
            before = state(log)
            disk.fail_at(kind, nth, errno.ENOSPC)  # type: ignore[arg-type]
            with pytest.raises(Refused) as refused:
                write(log, bytearray(data))
            assert code_of(refused) is ErrorCode.KAFKA_STORAGE_ERROR
            assert state(log) == before
            rolls += 1
        write(log, data)
        number += 1
    assert offsets_from(log, 0) == list(range(number))
    again, _ = load(disk.after_kill(), segment_bytes=700)
    assert offsets_from(again, 0) == list(range(number))
    assert len(again.segments) == len(log.segments)


def test_a_segment_that_failed_to_roll_by_age_takes_younger_batches_as_before() -> None:
    disk = SimDisk()
    log = new_log(disk, segment_ms=1000, index_interval_bytes=0)
    for number in range(3):
        write(log, batch(b"a", timestamp_ms=number))
    for nth in (1, 2, 3):
        disk.fail_at("create", nth, errno.ENOSPC)
        with pytest.raises(Refused):
            write(log, batch(b"late", timestamp_ms=5000))
        for _ in range(3):
            write(log, batch(b"a", timestamp_ms=500))
    assert offsets_from(log, 0) == list(range(12))


@pytest.mark.parametrize(("kind", "nth"), [("mkdir", 1), ("create", 1), ("create", 2), ("write", 1), ("write", 2)])
def test_a_log_that_cannot_be_begun_is_begun_later(kind: str, nth: int) -> None:
    disk = SimDisk(8)
    log = new_log(disk)
    log.identity = b"version: 0\ntopic_id: abc"
    disk.fail_at(kind, nth, errno.ENOSPC)  # type: ignore[arg-type]
    with pytest.raises(Refused) as refused:
        write(log, batch(b"a"))
    assert code_of(refused) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.end_offset == 0
    write(log, batch(b"a"))
    assert offsets_from(log, 0) == [0]
    assert disk.read_file(f"{log.directory}/partition.metadata") == log.identity


@pytest.mark.parametrize("seed", range(10))
def test_half_an_identity_that_cannot_be_removed_is_made_whole_later(seed: int) -> None:
    """Without it the log would be taken for another topic's at the next start, and moved away."""
    disk = SimDisk(seed)
    log = new_log(disk)
    log.identity = b"version: 0\ntopic_id: abc"
    for _ in range(2):
        disk.fail_at("write", 1, errno.ENOSPC)
        disk.fail_at("remove", 1, errno.EIO)
        with pytest.raises(Refused):
            write(log, batch(b"a"))
        assert disk.exists(f"{log.directory}/partition.metadata")
    write(log, batch(b"a"))
    assert disk.read_file(f"{log.directory}/partition.metadata") == log.identity
    run(log.flush())
    assert disk.after_power_loss(seed).read_file(f"{log.directory}/partition.metadata") == log.identity


def with_segment_left_over(disk: SimDisk) -> Log:
    """A roll failed by age, and the segment that it had begun could not be removed."""
    log = new_log(disk, segment_ms=1000, index_interval_bytes=0)
    for number in range(3):
        write(log, batch(b"a", timestamp_ms=number))
    disk.fail_at("create", 2, errno.ENOSPC)
    disk.fail_at("remove", 1, errno.EIO)
    with pytest.raises(Refused):
        write(log, batch(b"late", timestamp_ms=5000))
    assert disk.exists(f"{log.directory}/{3:020d}.log")
    return log


def test_a_roll_succeeds_where_an_earlier_one_has_left_its_segment() -> None:
    log = with_segment_left_over(SimDisk())
    write(log, batch(b"late", timestamp_ms=5000))
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert offsets_from(log, 0) == [0, 1, 2, 3]


@pytest.mark.parametrize("rolls_later", [False, True])
@pytest.mark.parametrize("end", ["kill", "power cut", "clean stop"])
def test_a_segment_that_is_left_over_takes_nothing_from_the_one_that_went_on(end: str, rolls_later: bool) -> None:
    disk = SimDisk()
    log = with_segment_left_over(disk)
    for number in range(4):
        write(log, batch(b"b", timestamp_ms=500 + number))
    if rolls_later:
        write(log, batch(b"late", timestamp_ms=5000))
        write(log, batch(b"late", timestamp_ms=5001))
        run(log.settle())
    written = list(range(log.end_offset))
    run(log.flush())
    if end == "clean stop":
        log.close()
    disk = disk.after_power_loss(1) if end == "power cut" else disk.after_kill()
    for _ in range(2):
        found, _ = load(disk, clean=end == "clean stop", recovery_point=log.end_offset if end == "clean stop" else 0)
        assert offsets_from(found, 0) == written
        assert not disk.exists(f"{log.directory}/{3:020d}.log")


@pytest.mark.parametrize("seed", range(20))
def test_what_was_cut_back_stays_so_when_more_is_durable_in_the_next_segment(seed: int) -> None:
    disk = SimDisk(seed)
    log = new_log(disk, segment_ms=1000)
    write(log, batch(b"a", timestamp_ms=0))
    run(log.flush())
    disk.fail_at("write", 1, errno.ENOSPC)
    with pytest.raises(Refused):
        write(log, batch(b"refused", timestamp_ms=1))
    write(log, batch(b"next segment", timestamp_ms=5000))
    assert len(log.segments) == 2
    run(log.flush())
    found, _ = load(disk.after_power_loss(seed))
    assert offsets_from(found, 0) == [0, 1]


def test_a_refused_marker_leaves_the_transaction_open() -> None:
    disk = SimDisk()
    log = new_log(disk)
    write(log, batch(b"a", producer=1, sequence=0, transactional=True))
    before = state(log)
    disk.fail_at("write", 1, errno.EIO)
    with pytest.raises(Refused):
        mark(log, ControlType.ABORT, 1)
    assert state(log) == before
    assert log.segments[0].aborted_index.entries() == []
    mark(log, ControlType.ABORT, 1)
    assert len(log.segments[0].aborted_index.entries()) == 1


async def test_a_failed_flush_raises_and_promises_nothing_then_or_later() -> None:
    disk = SimDisk()
    log = new_log(disk)
    write(log, batch(b"a"))
    await log.flush()
    write(log, batch(b"b"))
    disk.fail_at("flush")
    with pytest.raises(OSError):
        await log.flush()
    assert log.flushed_offset == 1
    with pytest.raises(OSError):
        await log.flush()
    assert log.flushed_offset == 1
    with pytest.raises(OSError):
        log.close()


@pytest.mark.parametrize("kind", ["flush", "sync_dir"])
async def test_a_disk_that_failed_once_is_not_asked_again(kind: str) -> None:
    disk = SimDisk()
    log = new_log(disk)
    write(log, batch(b"a"))
    disk.fail_at(kind)  # type: ignore[arg-type]
    with pytest.raises(OSError):
        await log.flush()
    calls = disk.calls
    log.roll()
    for promise in (log.flush, log.settle):
        with pytest.raises(OSError):
            await promise()
    with pytest.raises(OSError):
        log.close()
    assert log.flushed_offset == 0
    assert not [call for call in disk.log if call.number > calls and call.kind in ("flush", "sync_dir")]


@pytest.mark.parametrize("kind", ["flush", "sync_dir"])
async def test_a_roll_whose_settling_fails_promises_nothing(kind: str) -> None:
    disk = SimDisk()
    log = new_log(disk)
    write(log, batch(b"a"))
    log.roll()
    disk.fail_at(kind)  # type: ignore[arg-type]
    with pytest.raises(OSError):
        await log.settle()
    assert log.flushed_offset == 0
    assert log.needs_settling
