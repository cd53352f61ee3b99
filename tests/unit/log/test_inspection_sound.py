"""What is not damaged has nothing wrong: not after crashes and recovery, retention, compaction, deleted records."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "sim"))

from log_samples import DIRECTORY, NOW_MS, batch, load, mark, new_log, write
from log_workload import ROOT, History, run_node, run_until_crash

from semel.log.inspection.directory_check import DirectoryCheck, partition_directories
from semel.log.inspection.files import Files, open_partition
from semel.log.inspection.findings import Finding, Findings, Kind
from semel.log.inspection.partition_check import check_partition
from semel.log.inspection.surroundings import Surroundings
from semel.records.control import ControlType
from semel.sim.disk import SimDisk
from semel.sim.loop import SimLoop, run

# A crash leaves these, and the next start puts them in order.
LEFT_BY_A_CRASH = {Kind.TORN_TAIL, Kind.WILL_BE_CUT, Kind.INDEX_TO_BE_REBUILT}


def wrong(disk: Files) -> list[Finding]:
    findings = Findings()
    check = DirectoryCheck(disk, ROOT, findings, opens_records=True)
    for directory in partition_directories(disk, ROOT):
        check.partition(directory)
    # A name that was written down and no content: what is checked is the log.
    return [finding for finding in findings if finding.is_wrong and finding.kind != Kind.BAD_IDENTITY]


def judged(disk: SimDisk, directory: str = DIRECTORY, **around: Any) -> list[Finding]:
    findings = Findings()
    check_partition(open_partition(disk, directory), findings, Surroundings(**around))
    return [finding for finding in findings if finding.is_wrong]


def one_more_life(disk: SimDisk, histories: dict[str, History]) -> None:
    """The node starts on what is there, recovers it, works on, and stops cleanly."""
    broken = run(run_node(disk, histories, 1, 4), loop=SimLoop(end_s=3600))
    assert not broken


def test_a_node_that_lives_several_times_leaves_nothing_wrong_with_retention_and_compaction_at_work() -> None:
    disk, _ = run_until_crash(seed=3, lives=3, rounds=16)
    assert wrong(disk) == []
    names = disk.list_dir(f"{ROOT}/events-0")
    assert "00000000000000000000.log" not in names, "retention was at work"
    assert "table" in disk.read_file(f"{ROOT}/cleaner-offset-checkpoint").decode(), "and compaction"


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_power_loss_leaves_no_damage_and_its_recovery_nothing_wrong(when: Any) -> None:
    calls = len(run_until_crash(seed=5, lives=2, rounds=8)[0].log)
    for crash_at in range(20 + len(when), calls, calls // 12):
        disk, histories = run_until_crash(5, 2, 8, crash_at, when)
        disk = disk.after_power_loss()
        assert {finding.kind for finding in wrong(disk)} <= LEFT_BY_A_CRASH, crash_at
        one_more_life(disk, histories)
        assert wrong(disk) == [], crash_at


def test_a_kill_leaves_nothing_to_cut_and_its_recovery_nothing_wrong() -> None:
    calls = len(run_until_crash(seed=6, lives=2, rounds=8)[0].log)
    for crash_at in range(25, calls, calls // 12):
        disk, histories = run_until_crash(6, 2, 8, crash_at, "before")
        disk = disk.after_kill()
        assert {finding.kind for finding in wrong(disk)} <= {Kind.INDEX_TO_BE_REBUILT}, crash_at
        one_more_life(disk, histories)
        assert wrong(disk) == [], crash_at


def test_records_that_were_deleted_are_not_missed() -> None:
    disk = SimDisk()
    log = new_log(disk, segment_bytes=400)
    for number in range(12):
        write(log, batch(b"x" * 60, producer=1, sequence=number), leader_epoch=number // 4)
    log.advance_start(5)
    log.close()
    assert judged(disk, start_offset=5, was_clean=True) == []
    log, _ = load(disk, clean=True, start_offset=5, segment_bytes=400)
    log.remove_segments(log.removable_before(5))
    log.close()
    assert judged(disk, start_offset=5, was_clean=True) == []
    assert judged(disk) == [], "nor when nobody says so"


def test_producers_that_were_forgotten_are_noted_and_open_transactions_must_be_known() -> None:
    disk = SimDisk()
    log = new_log(disk)
    write(log, batch(b"x", producer=1, sequence=0))
    write(log, batch(b"x", producer=2, sequence=0, transactional=True))
    log.producers.expire(NOW_MS + 1000, 10)
    log.close()
    findings = Findings()
    check_partition(open_partition(disk, DIRECTORY), findings, Surroundings(was_clean=True))
    assert [(finding.kind, finding.is_wrong) for finding in findings] == [(Kind.FORGOTTEN_PRODUCERS, False)]
    log.producers.live_rows.clear()
    from semel.log.snapshots import write_snapshot_now

    write_snapshot_now(disk, DIRECTORY, 2, {})
    assert [finding.kind for finding in judged(disk, was_clean=True)] == [Kind.WRONG_SNAPSHOT]


def test_an_aborted_transaction_that_retention_has_taken_half_of_is_not_missed() -> None:
    disk = SimDisk()
    log = new_log(disk, segment_bytes=300)
    write(log, batch(b"x" * 100, producer=1, sequence=0, transactional=True))
    for number in range(4):
        write(log, batch(b"y" * 100, producer=2, sequence=number))
    write(log, batch(b"x" * 100, producer=1, sequence=1, transactional=True))
    mark(log, ControlType.ABORT, 1)
    write(log, batch(b"z", producer=2, sequence=4))
    log.high_watermark = log.end_offset
    asyncio.run(log.settle())
    log.remove_segments(log.removable_before(3))
    log.close()
    assert log.segments[0].base_offset > 0
    assert judged(disk, start_offset=log.start_offset, was_clean=True) == []


def test_gaps_are_noted_where_compaction_may_have_been_and_missed_where_not() -> None:
    disk = SimDisk()
    log = new_log(disk)
    for number, value in enumerate((b"a", b"b")):
        write(log, batch(value, timestamp_ms=NOW_MS + number))
    data = disk.read_file(log.segments[0].path)
    log.close()
    half = len(data) // 2
    path = f"{DIRECTORY}/00000000000000000000.log"
    file = disk.open(path)
    file.truncate(0)
    file.write_at(0, data[half:])
    file.close()
    assert [finding.kind for finding in judged(disk, compacts=False)] == [Kind.MISSING_OFFSETS]
    for around in (Surroundings(), Surroundings(cleaned_to=2), Surroundings(compacts=True)):
        findings = Findings()
        check_partition(open_partition(disk, DIRECTORY), findings, around)
        noted = {finding.kind for finding in findings}
        assert Kind.MISSING_OFFSETS not in noted
        assert (Kind.COMPACTION_GAPS in noted) == (around.cleaned_to is None)
