"""What a follower appends, and what it refuses to."""

from __future__ import annotations

import pytest
from follower_samples import aborted_of, assert_alike, assert_finds, catch_up, follower_log, producers_of
from log_samples import NOW_MS, batch, code_of, load, mark, new_log, read, write

from semel.log.errors import Refused
from semel.log.following import append_as_follower
from semel.log.log import Log
from semel.records.control import ControlType
from semel.sim.disk import SimDisk
from semel.wire.errors import ErrorCode


def busy_leader(**overrides: object) -> Log:
    """Several segments and epochs, producers with full windows, transactions that ended either way or not at all."""
    log = new_log(segment_bytes=700, **overrides)
    for number in range(12):
        epoch = 1 + number // 4
        write(log, batch(b"plain %d" % number, timestamp_ms=NOW_MS + 7 * number), leader_epoch=epoch)
        write(log, batch(b"a", b"b", producer=1, sequence=2 * number), leader_epoch=epoch)
        write(log, batch(b"in", producer=2, sequence=number, transactional=True), leader_epoch=epoch)
        write(log, batch(b"too", producer=3, sequence=number, transactional=True), leader_epoch=epoch)
        if number % 3 == 1:
            log.append_marker(ControlType.ABORT, 2, 0, 5, epoch, NOW_MS)
        if number % 5 == 3:
            log.append_marker(ControlType.COMMIT, 3, 0, 5, epoch, NOW_MS)
    assert len(log.segments) > 4
    return log


@pytest.mark.parametrize("max_bytes", [1, 400, 1 << 20])
def test_a_follower_is_what_its_leader_is(max_bytes: int) -> None:
    leader, follower = busy_leader(), follower_log(segment_bytes=700)
    catch_up(follower, leader, max_bytes=max_bytes)
    assert_alike(follower, leader)
    assert_finds(follower)
    assert aborted_of(follower)
    assert [s.base_offset for s in follower.segments] == [s.base_offset for s in leader.segments]


def test_a_follower_goes_on_as_the_leader() -> None:
    leader, follower = busy_leader(), follower_log(segment_bytes=700)
    catch_up(follower, leader)
    for log in (leader, follower):
        again = write(log, batch(b"a", b"b", producer=1, sequence=22), leader_epoch=9)
        assert again.is_duplicate
        assert not write(log, batch(b"c", producer=1, sequence=24), leader_epoch=9).is_duplicate
        mark(log, ControlType.COMMIT, 3, coordinator_epoch=5)
    assert_alike(follower, leader)


async def test_a_follower_that_was_killed_finds_all_of_it_again() -> None:
    leader, disk = busy_leader(), SimDisk(9)
    follower = follower_log(disk, segment_bytes=700)
    catch_up(follower, leader)
    await follower.settle()
    restarted, recovered = load(disk.after_kill(), segment_bytes=700)
    assert recovered.cut_bytes == 0
    assert_alike(restarted, leader)


def test_many_small_batches_are_taken_in_slices() -> None:
    leader, follower = new_log(), follower_log()
    for _ in range(10):
        write(leader, batch())
    data = memoryview(read(leader, 0))
    taken = append_as_follower(follower, data, 5, NOW_MS, most_batches=4)
    assert follower.end_offset == 4
    assert append_as_follower(follower, data[taken:], 5, NOW_MS, most_batches=400) == len(data) - taken
    assert_alike(follower, leader)


def test_neighbours_are_written_in_one_call() -> None:
    leader, disk = new_log(), SimDisk(9)
    for _ in range(10):
        write(leader, batch())
    follower = follower_log(disk)
    append_as_follower(follower, memoryview(read(leader, 0)), 5, NOW_MS)
    # The first batch of a segment is written alone.
    assert [call.kind for call in disk.log if call.path.endswith(".log")].count("write") == 2


def test_a_batch_that_the_fetch_has_cut_off_waits_for_the_next_one() -> None:
    leader, follower = new_log(), follower_log()
    first, second = batch(b"whole"), batch(b"cut off")
    write(leader, first)
    write(leader, second)
    assert append_as_follower(follower, memoryview(read(leader, 0))[:-1], 5, NOW_MS) == len(first)
    assert follower.end_offset == 1
    assert append_as_follower(follower, memoryview(read(leader, 1))[:30], 5, NOW_MS) == 0


def test_a_batch_of_a_later_term_is_left_out() -> None:
    """KAFKA-18723: the leader has truncated since it began to read for this term."""
    leader, follower = new_log(), follower_log()
    write(leader, batch(b"one"), leader_epoch=4)
    write(leader, batch(b"two"), leader_epoch=5)
    append_as_follower(follower, memoryview(read(leader, 0)), 4, NOW_MS)
    assert follower.end_offset == 1
    assert follower.epochs.entries == [(4, 0)]


def test_what_came_before_a_damaged_batch_is_kept() -> None:
    leader, follower = new_log(), follower_log()
    for _ in range(3):
        write(leader, batch(b"value", producer=1, sequence=leader.end_offset))
    data = bytearray(read(leader, 0))
    data[-1] ^= 1
    with pytest.raises(Refused) as refused:
        append_as_follower(follower, memoryview(data), 5, NOW_MS)
    assert code_of(refused) == ErrorCode.CORRUPT_MESSAGE
    assert follower.end_offset == 2
    assert follower.producers.window(1)[0].last_offset == 1


@pytest.mark.parametrize("offset", [0, 1, 3_000_000_000])
def test_offsets_that_do_not_go_on_are_refused(offset: int) -> None:
    leader, follower = new_log(), follower_log()
    for _ in range(2):
        write(leader, batch(b"x", b"y"))
    data = bytearray(read(leader, 0))
    data[len(data) // 2 : len(data) // 2 + 8] = offset.to_bytes(8, "big")
    with pytest.raises(Refused) as refused:
        append_as_follower(follower, memoryview(data), 5, NOW_MS)
    assert code_of(refused) == ErrorCode.CORRUPT_MESSAGE
    assert follower.end_offset == 2


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_gaps_that_compaction_has_left_stay_gaps_also_after_a_crash(policy: str) -> None:
    leader, disk = new_log(), SimDisk(9)
    for number in range(30):
        write(leader, batch(b"v%d" % number, producer=1, sequence=number))
    pieces = [read(leader, offset, 1) for offset in range(30) if offset % 7 in (0, 1, 5)]
    sizes = {"segment_bytes": 400, "cleanup_policy": policy}
    follower = follower_log(disk, **sizes)
    append_as_follower(follower, memoryview(b"".join(pieces)), 5, NOW_MS)
    kept = [offset for offset in range(30) if offset % 7 in (0, 1, 5)]
    assert follower.end_offset == kept[-1] + 1

    def check(log: Log) -> None:
        assert b"".join(read(log, offset, 1) for offset in kept) == b"".join(pieces)
        assert log.end_offset == kept[-1] + 1
        assert producers_of(log)[1][0].last_sequence == kept[-1]

    check(follower)
    check(load(disk.after_kill(), **sizes)[0])


def test_a_full_disk_leaves_whole_batches() -> None:
    leader, disk = busy_leader(), SimDisk(9)
    follower = follower_log(disk, segment_bytes=700)
    append_as_follower(follower, memoryview(read(leader, 0, 300)), 9, NOW_MS)
    disk.fill_after(1000)
    with pytest.raises(Refused) as refused:
        catch_up(follower, leader)
    assert code_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.mend()
    catch_up(follower, leader)
    assert_alike(follower, leader)
