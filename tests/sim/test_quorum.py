"""A quorum of controllers in a simulated world: it holds its promises at every seed, and planted bugs are found.

What may go wrong in a quorum, by number, and what would notice it:

34  test_election: a leader that starts again never leads its epoch again
35  test_quorum_replica: a vote is on disk before it is answered
36  test_quorum_replica: a candidate has its epoch and its vote on disk before it asks
37  test_election: a pre-vote moves the epoch and is no vote
38  test_election: who follows a leader that answers refuses pre-votes
39  test_election: questions are checked
48  test_metadata_terms: a snapshot is of one moment; rule 4 of sim/world/quorum_rules.py
51  test_fetch_validation, at the start of the log
52  test_a_quorum_keeps_what_it_has_promised: seeds 28 and 31, in which a leader is silent once
53  test_election: every move of the table can be made and no other
58  test_metadata_terms: what was not committed is forgotten and nobody is told of it
59  "decides too early"
12  test_election: a candidate that has lost waits for the rest of its time
41 to 47 are about sets of voters that change, which they do not do here yet.
"""

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
    "decides too early": 28,
}
"""A seed for each bug. SEMEL_SIM_HUNT=1 searches instead: when the drawing of faults has changed, say."""
HUNT = range(1, 40)


@pytest.mark.parametrize(("seed", "voters"), [(3, 3), (28, 3), (31, 3), (1, 5)])
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
