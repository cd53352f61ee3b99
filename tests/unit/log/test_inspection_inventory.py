"""What a start does about files that are not as they were noted is told by a check before, on the same notes."""

from __future__ import annotations

import pytest
from damaged_log import DIRECTORY, damageable, start
from test_log_missing_data import MENDED, MISSING, both
from test_log_store import ROOT, simulated

from semel.log.errors import DataMissing
from semel.log.inspection import directory_check
from semel.log.inspection.directory_check import DirectoryCheck, partition_directories
from semel.log.inspection.findings import Findings, Kind
from semel.log.inspection.metadata import Topics
from semel.sim.disk import SimDisk


def checked(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> Findings:
    topics = Topics(ids={"events": "A" * 22}, settings={"events": {}})
    monkeypatch.setattr(directory_check, "read_topics", lambda files, root: topics)
    monkeypatch.setattr(directory_check, "boot_id", lambda: disk.boot_id)
    findings = Findings()
    check = DirectoryCheck(disk, ROOT, findings)
    check.root_files()
    for directory in partition_directories(disk, ROOT):
        check.partition(directory)
    return findings


def wrong_in(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> set[Kind]:
    return {one.kind for one in checked(disk, monkeypatch) if one.is_wrong} - {Kind.BAD_PROPERTIES}


@both("is_clean")
@pytest.mark.parametrize("harm", [*MENDED, *MISSING])
def test_whatever_a_start_makes_anew_or_refuses_is_named(
    harm: str, is_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        before = wrong_in(damaged.disk, monkeypatch)
        (MENDED[harm] if harm in MENDED else MISSING[harm][0])(damaged)
        assert wrong_in(damaged.disk, monkeypatch) - before, before

    simulated(work())


@both("is_clean")
def test_nothing_is_wrong_with_files_that_are_as_they_were(is_clean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        assert wrong_in(damaged.disk, monkeypatch) <= ({Kind.INDEX_TO_BE_REBUILT} if not is_clean else set())

    simulated(work())


def test_a_batch_that_valid_ones_follow_is_damage_after_a_kill_and_what_is_kept_aside_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=False)
        disk = damaged.disk
        disk.flip_bit(damaged.path(-1, ".log"), 70, 1)
        found = {one.kind for one in checked(disk, monkeypatch)}
        assert Kind.BAD_BATCH in found
        assert Kind.KEPT_ASIDE not in found
        with pytest.raises(DataMissing):
            start(disk)
        kept = [one.path for one in checked(disk, monkeypatch) if one.kind is Kind.KEPT_ASIDE]
        assert [path.startswith(f"{DIRECTORY}/{damaged.bases[-1]:020d}.log.damaged-at-0") for path in kept] == [True]

    simulated(work())
