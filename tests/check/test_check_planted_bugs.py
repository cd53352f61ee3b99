"""The checker is trusted because it finds planted bugs, each in a short simulated run, and nothing without them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from simulated_check import load_of, simulated_check

from planted_bugs import BUGS, planted
from semel.sim.attack.assault import FaultKind
from semel.sim.judging.anomalies import Kind
from semel.sim.judging.report import Report, judge
from semel.sim.workload.access import Load

SEEDS = (1, 2, 3)


class Hunt(NamedTuple):
    """Who has to be at work, and what has to happen, for a bug to show; and how it shows."""

    load: Load
    kinds: tuple[FaultKind, ...]
    seconds: float
    shows_as: Kind


HUNTS = {
    "fencing skipped": Hunt(load_of(transactors=1), (), 5, Kind.UNFENCED),
    "window of four": Hunt(load_of(plain_producers=3), (FaultKind.CUT,), 5, Kind.UNPLACED),
    "last stable offset one too high": Hunt(load_of(transactors=1, assigned_readers=1), (), 2, Kind.EARLY_READ),
    "marker lost": Hunt(load_of(transactors=1, assigned_readers=1), (), 2, Kind.LOST_WRITE),
    "duplicate accepted after restart": Hunt(load_of(plain_producers=3), (FaultKind.KILL,), 5, Kind.DUPLICATE),
    "offsets committed outside the transaction": Hunt(
        load_of(plain_producers=1, pipeline_workers=1), (), 3, Kind.LOST_CONSUMPTION
    ),
}


def hunted(name: str, seed: int, bug: str | None) -> Report:
    hunt = HUNTS[name]
    with planted(bug):
        return judge(simulated_check(seed, hunt.seconds, hunt.kinds, hunt.load).access.history)


def test_every_bug_is_hunted() -> None:
    assert HUNTS.keys() == BUGS.keys()


@pytest.mark.parametrize("name", HUNTS)
def test_a_planted_bug_is_found(name: str) -> None:
    """By its own name, at one of a few seeds: the first, as a rule."""
    found: set[Kind] = set()
    for seed in SEEDS:
        found |= hunted(name, seed, name).forbidden_kinds()
        if HUNTS[name].shows_as in found:
            return
    pytest.fail(f"it shows as {HUNTS[name].shows_as}, but was found as {found}")


@pytest.mark.parametrize("name", HUNTS)
def test_without_the_bug_the_same_hunt_finds_nothing(name: str) -> None:
    report = hunted(name, SEEDS[0], None)
    assert report.is_clean, report
