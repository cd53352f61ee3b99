"""Indexes: a damaged entry is named, and those after it are still judged by what they say."""

from __future__ import annotations

import pytest
from log_samples import DIRECTORY, NOW_MS, batch, new_log, write

from semel.log.inspection.files import open_partition
from semel.log.inspection.findings import Finding, Findings, Kind
from semel.log.inspection.partition_check import check_partition
from semel.log.inspection.surroundings import Surroundings
from semel.sim.disk import SimDisk

STEM = f"{DIRECTORY}/00000000000000000000"


def written() -> SimDisk:
    """One segment in which every second batch or so has an entry in both indexes."""
    disk = SimDisk()
    log = new_log(disk)
    for number in range(20):
        write(log, batch(b"x" * 30, b"y", timestamp_ms=NOW_MS + number * 1000))
    log.close()
    return disk


def wrong_in(disk: SimDisk) -> list[Finding]:
    findings = Findings()
    check_partition(open_partition(disk, DIRECTORY), findings, Surroundings(was_clean=True))
    return [finding for finding in findings if finding.is_wrong]


@pytest.mark.parametrize(
    ("suffix", "width", "kind"),
    [(".index", 8, Kind.WRONG_INDEX_ENTRY), (".timeindex", 12, Kind.WRONG_TIME_ENTRY)],
)
def test_each_damaged_entry_is_named_and_does_not_hide_the_others(suffix: str, width: int, kind: Kind) -> None:
    disk = written()
    assert wrong_in(disk) == []
    size = len(disk.read_file(STEM + suffix))
    assert size >= 6 * width
    # Not in the last entry: one that is damaged there may also be missed as the end of the index.
    for position in range(size - width):
        for bit in (0, 3, 7):
            disk.flip_bit(STEM + suffix, position, bit)
            found = [(one.kind, one.position) for one in wrong_in(disk)]
            assert (kind, position - position % width) in found, (position, bit)
            # Of two neighbours that have changed places, either may be the wrong one.
            assert len(found) <= 2, (position, bit, found)
            disk.flip_bit(STEM + suffix, position, bit)


def test_empty_entries_at_the_end_of_an_index_are_not_entries() -> None:
    """As Kafka reserves them, and as a crash leaves them; after a clean stop they are damage."""
    disk = written()
    for suffix, width in ((".index", 8), (".timeindex", 12)):
        disk.replace_file_now(STEM + suffix, disk.read_file(STEM + suffix) + bytes(width * 5))
    assert {(finding.kind, finding.what) for finding in wrong_in(disk)} == {(Kind.BROKEN_INDEX, "5 empty entries")}
    findings = Findings()
    check_partition(open_partition(disk, DIRECTORY), findings, Surroundings(was_clean=False))
    assert not findings.is_wrong


def test_an_offset_index_that_is_far_too_short_is_noted() -> None:
    disk = SimDisk()
    log = new_log(disk)
    for number in range(60):
        write(log, batch(b"x" * 1000, timestamp_ms=NOW_MS + number))
    log.close()
    disk.replace_file_now(f"{STEM}.index", disk.read_file(f"{STEM}.index")[:40])
    findings = Findings()
    check_partition(open_partition(disk, DIRECTORY), findings, Surroundings(was_clean=True))
    assert [(finding.kind, finding.is_wrong) for finding in findings] == [(Kind.SHORT_INDEX, False)]
