"""One term of following: what it asks for, and what it does with answers."""

from __future__ import annotations

import asyncio

import pytest
from follower_world import FollowerWorld, append, append_to, config_of, mark, open_log, topic_id
from test_partition_leader import simulated

from semel.log.errors import CorruptSegment
from semel.log.log import Log
from semel.records.control import ControlType
from semel.replication.follower import Follower
from semel.replication.following import Phase, Position
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import EpochEndOffset, FetchResponsePartition


class Alone:
    """A follower whose leader is only spoken for."""

    def __init__(self, *, end: int = 0, epoch: int = 3, flush_ms: float = 2, **overrides: object) -> None:
        self.disk = SimDisk(2, flush_latency_ms=(flush_ms, flush_ms))
        self.broken: list[BaseException] = []
        self.log = open_log(self.disk, "/data/t-0", config_of(**overrides))
        for _ in range(end):
            append_to(self.log, b"mine", leader_epoch=epoch)
        self.in_sync = False
        self.changes = 0
        self.follower = Follower(
            "t",
            bytes(16),
            0,
            self.log,
            1,
            5,
            SimClock(asyncio.get_running_loop()),
            self.broken.append,
            is_in_sync=lambda: self.in_sync,
        )
        self.follower.changed = self.changed

    def changed(self) -> None:
        self.changes += 1

    async def flushed(self) -> Position:
        while self.follower.position is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return self.follower.position

    def take(self, asked: Position | None, **answer: object) -> None:
        assert asked is not None
        said = FetchResponsePartition(**{"high_watermark": 0, "log_start_offset": 0, **answer})  # type: ignore[arg-type]
        for _ in self.follower.take(asked, said):
            pass


def records(offset: int, count: int, leader_epoch: int = 5, start: int = 0) -> bytes:
    log = made(offset, count, leader_epoch)
    return log.segments[0].file.read_at(start, 1 << 20)


def made(offset: int, count: int, leader_epoch: int) -> Log:
    log = open_log(SimDisk(5), "/data/made", config_of(), start_offset=offset)
    for _ in range(count):
        append_to(log, b"theirs", leader_epoch=leader_epoch)
    return log


@simulated
async def test_it_asks_for_what_it_has_flushed() -> None:
    alone = Alone()
    assert alone.follower.position == Position(0, -1, 5, 0)
    alone.take(alone.follower.position, records=records(0, 3), high_watermark=2)
    assert alone.log.end_offset == 3
    assert alone.follower.is_flushing
    assert alone.follower.position is None
    assert alone.changes == 0
    assert await alone.flushed() == Position(3, 5, 5, 0)
    assert alone.log.flushed_offset == 3
    await asyncio.sleep(0.001)
    assert alone.changes == 1


@simulated
async def test_with_flushes_left_to_the_system_it_asks_for_the_end_of_its_log() -> None:
    alone = Alone(flush_messages=1000, flush_ms=1000)
    alone.take(alone.follower.position, records=records(0, 3))
    assert alone.follower.position == Position(3, 5, 5, 0)


@simulated
async def test_what_the_term_before_has_left_is_flushed_first() -> None:
    alone = Alone(end=4)
    assert alone.follower.position is None
    assert (await alone.flushed()).offset == 4


@simulated
async def test_the_high_watermark_is_the_leaders_up_to_the_own_end_and_never_goes_back() -> None:
    alone = Alone()
    alone.take(alone.follower.position, records=records(0, 3), high_watermark=9)
    assert alone.log.high_watermark == 3
    alone.take(await alone.flushed(), high_watermark=1)
    assert alone.log.high_watermark == 3


@simulated
async def test_nothing_the_leader_says_counts_where_the_logs_part() -> None:
    """KAFKA-14704."""
    alone = Alone(end=4)
    alone.log.high_watermark = 1
    alone.take(await alone.flushed(), diverging_epoch=EpochEndOffset(epoch=2, end_offset=2), high_watermark=4)
    assert alone.log.high_watermark == 1
    assert alone.follower.phase is Phase.CUTTING
    await alone.follower.cut()
    assert alone.log.end_offset == 2
    assert alone.follower.position == Position(2, 3, 5, 0)


@simulated
async def test_an_answer_to_another_question_does_not_count() -> None:
    """KAFKA-18991: the offset may be the same, the leader epoch is not."""
    alone = Alone()
    asked = alone.follower.position
    assert asked is not None
    for other in (asked._replace(leader_epoch=4), asked._replace(offset=1), asked._replace(last_epoch=0)):
        alone.take(other, records=records(0, 3))
        assert alone.log.end_offset == 0
    alone.take(asked, records=records(0, 1))
    alone.take(asked, records=records(0, 3))
    assert alone.log.end_offset == 1


@simulated
async def test_batches_of_a_later_term_are_left_out_and_not_asked_for_at_once() -> None:
    alone = Alone()
    alone.take(alone.follower.position, records=records(0, 3, leader_epoch=6))
    assert alone.log.end_offset == 0
    assert alone.follower.phase is Phase.PAUSED
    alone.follower.resume()
    assert alone.follower.position is not None


@simulated
async def test_the_last_epoch_is_told_also_after_an_empty_answer() -> None:
    """KAFKA-15510."""
    alone = Alone(end=2)
    alone.take(await alone.flushed())
    assert (await alone.flushed()).last_epoch == 3


@simulated
async def test_the_log_begins_where_the_leaders_does_but_not_beyond_what_is_committed() -> None:
    alone = Alone()
    alone.take(alone.follower.position, records=records(0, 5), high_watermark=3, log_start_offset=4)
    assert alone.log.start_offset == 3
    alone.take(await alone.flushed(), high_watermark=5, log_start_offset=4)
    assert alone.log.start_offset == 4


@simulated
async def test_a_term_that_ends_between_two_slices_appends_no_more() -> None:
    alone = Alone()
    asked = alone.follower.position
    assert asked is not None
    steps = alone.follower.take(asked, FetchResponsePartition(records=records(0, 600), high_watermark=600))
    next(steps)
    assert 0 < alone.log.end_offset < 600
    assert alone.follower.position is None
    end_offset = alone.log.end_offset
    alone.follower.resign()
    assert list(steps) == []
    assert alone.log.end_offset == end_offset
    assert alone.log.high_watermark == 0


@simulated
async def test_a_fenced_term_asks_no_more() -> None:
    alone = Alone()
    alone.take(alone.follower.position, error_code=ErrorCode.FENCED_LEADER_EPOCH)
    assert alone.follower.phase is Phase.FENCED
    assert alone.follower.position is None
    alone.follower.resign()
    assert alone.follower.is_closed


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_refused_term_pauses_longer_each_time_and_goes_on(code: ErrorCode) -> None:
    @simulated
    async def work() -> None:
        alone = Alone()
        for failures in (1, 2):
            alone.take(alone.follower.position, error_code=code)
            assert (alone.follower.phase, alone.follower.failures) == (Phase.PAUSED, failures)
            assert alone.follower.problem == code.name
            alone.follower.resume()
        alone.take(alone.follower.position)
        assert alone.follower.failures == 0

    work()


@simulated
async def test_a_damaged_answer_is_asked_for_again() -> None:
    alone = Alone()
    data = bytearray(records(0, 2))
    data[-1] ^= 1
    alone.take(alone.follower.position, records=bytes(data), high_watermark=2)
    assert alone.log.end_offset == 1
    assert alone.log.high_watermark == 0
    assert alone.follower.phase is Phase.PAUSED
    alone.follower.resume()
    assert (await alone.flushed()).offset == 1


@simulated
async def test_a_full_disk_pauses_and_a_disk_that_cannot_be_cut_back_ends_the_node() -> None:
    alone = Alone()
    alone.disk.fail_at("write")
    alone.take(alone.follower.position, records=records(0, 1))
    assert alone.follower.phase is Phase.PAUSED
    alone.follower.resume()
    alone.disk.fail_at("write")
    alone.disk.fail_at("truncate")
    alone.take(alone.follower.position, records=records(0, 1))
    assert len(alone.broken) == 1


@simulated
async def test_an_offset_out_of_range_is_looked_up() -> None:
    alone = Alone(end=4)
    for start, end, phase in ((0, 4, Phase.FETCHING), (0, 3, Phase.CUTTING), (9, 12, Phase.EMPTYING)):
        alone.take(await alone.flushed(), error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        assert alone.follower.phase is Phase.LOOKING_UP
        assert alone.follower.position is None
        alone.follower.looked_up(start, end)
        assert alone.follower.phase is phase
        if phase is not Phase.FETCHING:
            await alone.follower.cut()
    assert await alone.flushed() == Position(9, -1, 5, 9)


@simulated
async def test_a_log_that_is_damaged_below_the_cut_is_copied_anew_when_nobody_counts_on_it() -> None:
    alone = Alone(end=8)
    asked = await alone.flushed()
    alone.log.producers.live_rows[1] = bytes(46)  # so that the batches are looked at

    def damaged(position: int = 0) -> None:
        raise CorruptSegment("x.log", 1, 0, "as the test wants it")

    alone.log.segments[0].batches = damaged  # type: ignore[assignment, method-assign]
    alone.in_sync = True
    alone.take(asked, diverging_epoch=EpochEndOffset(epoch=2, end_offset=6))
    await alone.follower.cut()
    assert alone.follower.phase is Phase.PAUSED
    assert alone.log.end_offset == 8
    alone.in_sync = False
    alone.follower.resume()
    alone.take(await alone.flushed(), diverging_epoch=EpochEndOffset(epoch=2, end_offset=6))
    await alone.follower.cut()
    assert alone.follower.phase is Phase.LOOKING_UP
    alone.follower.look_up_refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    alone.follower.resume()
    assert alone.follower.phase is Phase.LOOKING_UP
    alone.follower.looked_up(2, 20)
    await alone.follower.cut()
    assert await alone.flushed() == Position(2, -1, 5, 2)


@simulated
async def test_a_cut_that_finds_no_room_is_tried_again() -> None:
    alone = Alone(end=8)
    alone.take(await alone.flushed(), diverging_epoch=EpochEndOffset(epoch=2, end_offset=6))
    alone.log.disk.fail_at("read")  # type: ignore[attr-defined]
    await alone.follower.cut()
    assert alone.follower.phase is Phase.PAUSED
    assert alone.log.end_offset == 8
    assert not alone.broken


@simulated
async def test_a_term_that_ends_while_it_cuts_leaves_the_log_to_the_next_one() -> None:
    alone = Alone(end=8)
    alone.take(await alone.flushed(), diverging_epoch=EpochEndOffset(epoch=2, end_offset=6))
    alone.follower.resign()
    await alone.follower.cut()
    assert alone.log.end_offset == 8


@simulated
async def test_an_idempotent_producer_goes_on_where_its_leader_was() -> None:
    """Its window of five, an open transaction and aborted ones included."""
    world = FollowerWorld()
    partition = world.lead()
    for number in range(8):
        append(partition, b"a", b"b", producer=1, sequence=2 * number)
    append(partition, b"in", producer=2, sequence=0, transactional=True)
    append(partition, b"in", producer=3, sequence=0, transactional=True)
    mark(partition, ControlType.ABORT, 3)
    world.follow()
    follower = await world.caught_up()
    await asyncio.sleep(1)  # until it is told how much is committed
    follower.resign()
    other = world.leader.lead((topic_id(), 0), follower.log, 1)
    assert follower.log.last_stable_offset == 16
    for number in range(3, 8):
        offset = append(other, b"a", b"b", producer=1, sequence=2 * number)
        assert offset == 2 * number + 1, "a retry is known as one"
    assert append(other, b"c", producer=1, sequence=16) == 19
    await world.close()


@simulated
async def test_a_producer_is_known_after_its_leader_was_rebuilt_as_far_as_the_log_tells_of_it() -> None:
    """Snapshots are not replicated: a replica that was made anew knows those producers of which a batch is left, by
    that batch. Retention may have taken the last one of an idle producer: it is not known then, as in Kafka, and is
    told so, instead of being taken for somebody else. Compaction keeps the last batch of every producer."""
    world = FollowerWorld()
    partition = world.lead(segment_bytes=200)
    append(partition, b"idle", producer=1, sequence=0)
    for number in range(20):
        append(partition, b"busy" * 10, producer=2, sequence=number)
    world.follow()
    await world.caught_up()
    partition.log.advance_start(10)
    partition.log.remove_segments(partition.log.removable_before(10))
    assert partition.log.producers.entry(1) is not None
    rebuilt = open_log(SimDisk(8), "/data/rebuilt", config_of())
    follower = world.follow(leader_epoch=0, log=rebuilt)
    await world.caught_up()
    assert follower.log.start_offset == partition.log.start_offset > 0
    assert follower.log.producers.entry(1) is None
    assert follower.log.producers.window(2) == partition.log.producers.window(2)
    follower.resign()
    other = world.leader.lead((topic_id(), 0), follower.log, 1)
    assert append(other, b"busy", producer=2, sequence=20) == 21
    assert append(other, b"busy", producer=2, sequence=20) == 21
    with pytest.raises(Exception, match="UNKNOWN_PRODUCER_ID"):
        append(other, b"idle", producer=1, sequence=1)
    await world.close()
