"""A follower of any leaders, with crashes in between, ends as the last of them is, and as a start would rebuild it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from semel.config import BrokerConfig, topic_config
from semel.log.following import append_as_follower
from semel.log.log import Log
from semel.log.recovery import load_log
from semel.log.truncation import restart_at, truncate_to
from semel.records.batch import read_header
from semel.records.build import build_batch
from semel.records.control import ControlType, control_batch
from semel.replication.following import cut_offset
from semel.sim.disk import SimDisk
from semel.sim.loop import SimLoop, run

NOW_MS = 1_700_000_000_000
CONFIG = topic_config(
    {"segment.bytes": "700", "index.interval.bytes": "90", "cleanup.policy": "compact"}, BrokerConfig()
)


@dataclass
class History:
    """What a leader has: batches with their offsets and epochs, of which some are compacted away."""

    batches: list[bytes] = field(default_factory=list)
    epoch: int = 0
    end: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, None] = field(default_factory=dict)

    def write(self, producer: int, count: int) -> None:
        transactional = producer >= 2
        batch = build_batch(
            [b"%d %d" % (self.epoch, self.end)] * count,
            base_timestamp_ms=NOW_MS + self.end % 7,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=self.sequences.get(producer, 0) if producer >= 0 else -1,
            transactional=transactional,
            base_offset=self.end,
            leader_epoch=self.epoch,
        )
        if producer >= 0:
            self.sequences[producer] = self.sequences.get(producer, 0) + count
        if transactional:
            self.open[producer] = None
        self.batches.append(bytes(batch))
        self.end += count

    def mark(self, producer: int, aborts: bool) -> None:
        marker = control_batch(
            ControlType.ABORT if aborts else ControlType.COMMIT,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=self.epoch,
            timestamp_ms=NOW_MS,
            base_offset=self.end,
            leader_epoch=self.epoch,
        )
        self.open.pop(producer, None)
        self.batches.append(bytes(marker))
        self.end += 1

    def cut(self, kept: int) -> History:
        """Another leader that has only the first batches of this one."""
        other = History(epoch=self.epoch)
        for batch in self.batches[:kept]:
            header = read_header(batch)
            other.end = header.next_offset
            if header.is_control:
                other.open.pop(header.producer_id, None)
            elif header.producer_id >= 0:
                other.sequences[header.producer_id] = header.last_sequence + 1
                if header.is_transactional:
                    other.open[header.producer_id] = None
        other.batches = self.batches[:kept]
        return other

    def epochs(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            header = read_header(batch)
            if not found or found[-1][0] < header.partition_leader_epoch:
                found.append((header.partition_leader_epoch, header.base_offset))
        return found

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above another, and where it ends."""
        epochs = self.epochs()
        found = max((one for one, _ in epochs if one <= epoch), default=-1)
        return found, min((start for one, start in epochs if one > found), default=self.end)


class Replica:
    def __init__(self) -> None:
        self.disk = SimDisk(1)
        self.disk.make_dirs("/data")
        self.disk.sync_dir_now("/")
        self.flushed = 0
        self.log = self.load()

    def load(self) -> Log:
        log, _ = load_log(
            self.disk, "/data/t-0", CONFIG, recovery_point=0, start_offset=0, now_ms=NOW_MS, was_clean=False
        )
        return log

    async def follow(self, leader: History, flushes: bool, most_batches: int) -> None:
        while (last := self.log.epochs.latest) >= 0:
            epoch, end = leader.end_of(last)
            if epoch < 0:
                self.flushed = 0
                await restart_at(self.log, 0)
                break
            if epoch == last and end >= self.log.end_offset:
                break
            offset = cut_offset(self.log.epochs, self.log.end_offset, epoch, end)
            self.flushed = min(self.flushed, offset)
            await truncate_to(self.log, offset, NOW_MS)
        data = memoryview(
            b"".join(batch for batch in leader.batches if read_header(batch).base_offset >= self.log.end_offset)
        )
        while data:
            taken = append_as_follower(self.log, data, leader.epoch, NOW_MS, most_batches=most_batches)
            assert taken
            data = data[taken:]
        if flushes:
            await self.log.flush()
            if self.log.needs_settling:
                await self.log.settle()
            self.flushed = self.log.flushed_offset

    def crash(self, loses_power: bool, seed: int) -> None:
        self.disk = self.disk.after_power_loss(seed) if loses_power else self.disk.after_kill()
        self.log = self.load()
        assert self.log.end_offset >= self.flushed


def contents(log: Log) -> bytes:
    return b"".join(segment.file.read_at(0, 1 << 20) for segment in log.segments)


def conclusions(log: Log) -> Any:
    return (
        {producer: row[:26] + row[34:] for producer, row in log.producers.live_rows.items()},
        list(log.producers._open.items()),
        log.epochs.entries,
        [aborted for segment in log.segments for aborted in segment.aborted_index.entries()],
        log.end_offset,
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(-1, 3), st.integers(1, 3)),
        st.tuples(st.just("mark"), st.integers(2, 3), st.booleans()),
        st.tuples(st.just("elect"), st.floats(0, 1), st.just(0)),
        st.tuples(st.just("compact"), st.floats(0, 1), st.integers(1, 6)),
        st.tuples(st.just("follow"), st.booleans(), st.integers(1, 9)),
        st.tuples(st.just("crash"), st.booleans(), st.integers(0, 5)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_a_follower_ends_as_its_leader_and_as_a_start_would_rebuild_it(steps: list[tuple[str, Any, Any]]) -> None:
    async def story() -> None:
        leader, replica, newest = History(), Replica(), 0
        for what, one, two in [*steps, ("follow", True, 5)]:
            if what == "write":
                leader.write(one, two)
            elif what == "mark" and one in leader.open:
                leader.mark(one, two)
            elif what == "elect":
                newest += 1
                leader = leader.cut(round(len(leader.batches) * one))
                leader.epoch = newest
            elif what == "compact":
                # The replica has got them before; who comes later finds gaps.
                await replica.follow(leader, True, 9)
                first = round(len(leader.batches) * one)
                gone = leader.batches[first : first + two]
                if all(not read_header(batch).is_idempotent for batch in gone):
                    del leader.batches[first : first + two]
                    replica = Replica()
            elif what == "follow":
                await replica.follow(leader, one, two)
            elif what == "crash":
                replica.crash(one, two)
        assert contents(replica.log) == b"".join(leader.batches)
        assert replica.log.epochs.entries == leader.epochs()
        told = conclusions(replica.log)
        replica.crash(False, 0)
        assert conclusions(replica.log) == told
        fresh = Replica()
        await fresh.follow(leader, True, 100)
        assert conclusions(fresh.log) == told

    run(story(), loop=SimLoop(end_s=3600))
