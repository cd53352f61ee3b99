"""A quorum of controllers in a simulated world: it holds its promises at every seed, and planted bugs are found."""

from __future__ import annotations

import os

import pytest
from controllers_world import try_seed
from quorum_bugs import planted

from semel.sim.world.findings import Findings

SECONDS = 15.0
FOUND_BY: dict[str, int] = {
    "votes twice": 1,
    "votes for who has less": 28,
    "half is a majority": 28,
    "pre votes are refused": 28,
    "positions are believed": 28,
    "decides too early": 1,
}
"""A seed for each bug. SEMEL_SIM_HUNT=1 searches instead: when the drawing of faults has changed, say."""
HUNT = range(1, 40)


@pytest.mark.parametrize(("seed", "voters"), [(1, 3), (2, 3), (3, 3), (1, 5)])
def test_a_quorum_keeps_what_it_has_promised(seed: int, voters: int) -> None:
    findings = try_seed(seed, voters, SECONDS)
    assert not findings.violations
    assert findings.coverage["producer ids given out"] > 50


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_planted_bug_is_found(name: str) -> None:
    def found(seed: int) -> Findings:
        with planted(name):
            return try_seed(seed, 3, SECONDS)

    if os.environ.get("SEMEL_SIM_HUNT"):
        assert next((seed for seed in HUNT if found(seed).violations), None) is not None
    else:
        assert found(FOUND_BY[name]).violations
