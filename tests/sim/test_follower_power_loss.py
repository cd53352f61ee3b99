"""Power loss at every single disk call of a log that follows one leader after the other, and is cut for each of them.

What a start finds must be the beginning of what one of these leaders had, with all that was flushed and not cut since;
never a piece of one behind a piece of another.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from log_judge import read_all
from log_workload import BROKER, ROOT, TOPIC_IDS, InlineJobs

from semel.config import topic_config
from semel.host.api import Host
from semel.log.following import append_as_follower
from semel.log.log import Log
from semel.log.producers import Producers
from semel.log.store import LogStore
from semel.log.truncation import restart_at, truncate_to
from semel.records.batch import BatchHeader, read_header
from semel.records.build import build_batch
from semel.records.control import ControlType, control_batch, read_control
from semel.sim.clock import SimClock
from semel.sim.disk import PowerLost, SimDisk
from semel.sim.loop import SimLoop, run

CONFIG = topic_config({"segment.bytes": "700", "index.interval.bytes": "100", "retention.ms": "-1"}, BROKER)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.log.segment._SCAN_BYTES", 256)
    monkeypatch.setattr("semel.log.segment._LOCATE_BYTES", 128)


@dataclass
class Leader:
    """What one leader has: it begins as the leader before it, up to `common`."""

    start: int
    common: int
    batches: list[bytes]


def leaders(seed: int) -> list[Leader]:
    """All batches have the same size, so that what is left of one lies exactly where another's should."""
    chance = random.Random(seed)
    found: list[Leader] = []
    for epoch in range(1, 7):
        last = found[-1] if found else Leader(0, 0, [])
        if epoch == 4:
            found.append(Leader(60, 60, written(60, 14, epoch, chance)))
            continue
        end = last.start + len(last.batches)
        # Once it is cut to an exact beginning of a segment, and once nothing but the last batch goes.
        common = {2: end - 9, 3: end - 1, 5: 66, 6: 60}.get(epoch, 0)
        kept = last.batches[: common - last.start]
        found.append(Leader(last.start, common, kept + written(common, 14, epoch, chance)))
    return found


def written(offset: int, count: int, epoch: int, chance: random.Random) -> list[bytes]:
    batches: list[bytes] = []
    for number in range(count):
        producer = epoch * 10 + number % 2
        if number % 5 == 4:
            batch = control_batch(
                ControlType.ABORT,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=epoch,
                timestamp_ms=1_700_000_000_000,
                base_offset=offset + number,
                leader_epoch=epoch,
            )
        else:
            batch = build_batch(
                [bytes(chance.randrange(97, 122) for _ in range(20))],
                base_timestamp_ms=1_700_000_000_000 + number,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=number,
                transactional=number % 2 == 0,
                base_offset=offset + number,
                leader_epoch=epoch,
            )
        batches.append(bytes(batch))
    return batches


@dataclass
class Replica:
    disk: SimDisk
    history: list[Leader]
    log: Log | None = None
    flushed: int = 0
    seen: list[Leader] = field(default_factory=list)

    def start(self) -> None:
        host = Host(SimClock(asyncio.get_running_loop()), self.disk, None, random.Random(7), InlineJobs())  # type: ignore[arg-type]
        self.broken: list[BaseException] = []
        self.store = LogStore(host, ROOT, BROKER, self.broken.append)
        self.store.open()
        self.log = self.store.load("events", 0, TOPIC_IDS["events"], CONFIG)
        self.log.high_watermark = self.log.start_offset

    async def live(self) -> None:
        self.start()
        for number, leader in enumerate(self.history):
            await self.follow(leader)
            await self.store.checkpoint()
            if number == 2:
                await self.store.close()
                self.start()
        await self.store.close()

    async def follow(self, leader: Leader) -> None:
        log = self.log
        assert log is not None
        self.seen.append(leader)
        if leader.start > log.end_offset:
            self.flushed = 0
            await restart_at(log, leader.start)
        elif leader.common < log.end_offset:
            self.flushed = min(self.flushed, leader.common)
            await truncate_to(log, leader.common, 0)
        while log.end_offset < leader.start + len(leader.batches):
            at = log.end_offset - leader.start
            append_as_follower(log, memoryview(b"".join(leader.batches[at : at + 3])), 99, 0)
            if at % 2:
                await log.flush()
                self.flushed = max(self.flushed, log.flushed_offset)
            await asyncio.sleep(0.001)


def run_until_crash(crash_at: int = 0, when: Any = "before") -> Replica:
    disk = SimDisk(1, flush_latency_ms=(0.0, 1.0))
    disk.crash_at(crash_at, when)
    replica = Replica(disk, leaders(1))

    async def life() -> None:
        try:
            await replica.live()
        except PowerLost:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    run(life(), loop=SimLoop(end_s=3600))
    assert not [error for error in replica.broken if not isinstance(error, PowerLost)], replica.broken
    return replica


def judge(disk: SimDisk, crashed: Replica) -> None:
    async def restarted() -> None:
        again = Replica(disk, crashed.history)
        again.start()
        log = again.log
        assert log is not None
        assert log.end_offset >= crashed.flushed, "what was flushed is gone"
        check(log, crashed.seen)
        # It goes on with the leader that it had, and with the next ones, as if nothing had happened.
        for leader in crashed.history[max(len(crashed.seen) - 1, 0) :]:
            if leader.start + len(leader.batches) > log.start_offset:
                end = common_end(log, leader)
                again.flushed = 0
                await again.follow(Leader(leader.start, end, leader.batches))
                check(log, [leader])
        await again.store.close()
        assert not again.broken

    run(restarted(), loop=SimLoop(end_s=3600))


def common_end(log: Log, leader: Leader) -> int:
    """Where the log and the leader's part, as they find out by their epochs."""
    end = log.start_offset
    for header, data in read_all(log):
        at = header.base_offset - leader.start
        if not 0 <= at < len(leader.batches) or leader.batches[at] != data:
            break
        end = header.next_offset
    return end


def check(log: Log, seen: list[Leader]) -> None:
    found = read_all(log)
    assert not found or found[-1][0].next_offset == log.end_offset
    if not found:  # it was about to begin later, and what there still is lies before that
        return
    assert any(is_of(found, leader) for leader in seen), "pieces of several leaders"
    producers, aborted = Producers(), []
    epochs: list[tuple[int, int]] = []
    for header, data in found:
        if not epochs or epochs[-1][0] != header.partition_leader_epoch:
            epochs.append((header.partition_leader_epoch, header.base_offset))
        ended = producers.replay(header, read_control(data, header) if header.is_control else None, 0)
        if ended is not None and ended.aborted:
            aborted.append((ended.producer_id, ended.first_offset, ended.marker_offset))
    assert log.epochs.entries == epochs
    assert {p: row[:26] + row[34:] for p, row in log.producers.live_rows.items()} == {
        p: row[:26] + row[34:] for p, row in producers.live_rows.items()
    }
    assert [entry[:3] for segment in log.segments for entry in segment.aborted_index.entries()] == aborted


def is_of(found: list[tuple[BatchHeader, bytes]], leader: Leader) -> bool:
    first = found[0][0].base_offset - leader.start if found else 0
    return first >= 0 and [data for _, data in found] == leader.batches[first : first + len(found)]


def test_the_story_cuts_at_segments_and_within_them() -> None:
    replica = run_until_crash()
    assert len(replica.seen) == 6
    assert replica.log is not None
    assert [read_header(batch).partition_leader_epoch for batch in replica.history[-1].batches[:2]] == [6, 6]
    kinds = {(call.kind, call.path.rpartition(".")[2]) for call in replica.disk.log}
    assert {("truncate", "log"), ("remove", "log"), ("remove", "snapshot"), ("remove", "index")} <= kinds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_power_loss_at_any_disk_call_leaves_a_part_of_one_leader(when: Any) -> None:
    for call in range(1, run_until_crash().disk.calls + 1):
        crashed = run_until_crash(call, when)
        for seed in range(int(os.environ.get("SEMEL_POWER_LOSS_SEEDS", "1"))):
            try:
                judge(crashed.disk.after_power_loss(call * 100 + seed), crashed)
            except BaseException as failure:
                failure.add_note(f"power was lost {when} call {call}, survival seed {call * 100 + seed}")
                failure.add_note(f"last calls: {[tuple(c) for c in list(crashed.disk.log)[-4:]]}")
                raise


def test_a_kill_at_any_disk_call_leaves_a_part_of_one_leader() -> None:
    for call in range(1, run_until_crash().disk.calls + 1, 5):
        crashed = run_until_crash(call)
        judge(crashed.disk.after_kill(), crashed)
