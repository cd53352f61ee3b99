"""Our design of the sink does no harm in any order of events, and each way in which it could be simpler does."""

from __future__ import annotations

import os

import pytest
from sink_model import Design, World, explore

SMALL = [World(runs=2, lost=1, timeouts=1, restores=1), World(runs=3, lost=1, timeouts=1, restores=0)]
LARGE = [World(runs=3, lost=1, timeouts=1, restores=1), World(runs=2, lost=2, timeouts=2, restores=1)]
WORLDS = [*SMALL, *(LARGE if os.environ.get("SEMEL_SINK_MODEL") == "large" else [])]

TWICE, LOST = "committed twice", "count as done"

UNSOUND = {
    "the marker is read before InitProducerId": (Design(order=("read", "init", "write", "end")), TWICE),
    "a marker at the batch or above means done": (Design(rule="at_least"), LOST),
    "the marker has no digest": (Design(rule="number"), LOST),
    "a decision in a file before the end": (Design(marker="before"), LOST),
    "a decision in a file after the end": (Design(marker="after"), TWICE),
    "after a lost answer it is sent again": (Design(unknown="resend"), TWICE),
    "a lost answer is taken for a good one": (Design(unknown="assume"), LOST),
    "the marker is read as committed data": (Design(reads="committed"), TWICE),
    "transactions of tasks with fixed ids": (Design(members="fixed", times_out=False), TWICE),
    "transactions of tasks with timeouts": (Design(members="unique"), LOST),
    "abort ends the transactions of tasks": (Design(members="unique", times_out=False, abort="end"), LOST),
}


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_one_transaction_per_batch_in_commit_does_no_harm(world: World) -> None:
    verdict = explore(Design(), world)
    assert verdict.harm is None, "\n".join([verdict.harm or "", *verdict.trace])
    assert verdict.finished > 1000, "and it does its work"


@pytest.mark.parametrize("name", UNSOUND)
def test_a_simpler_design_does_harm(name: str) -> None:
    design, harm = UNSOUND[name]
    verdict = explore(design, World())
    assert verdict.harm is not None
    assert harm in verdict.harm
    assert verdict.trace, "and the way to it is told"


def test_without_a_restored_checkpoint_the_digest_would_not_be_missed() -> None:
    """So it is the restored checkpoint that these two are about, and the model tells them apart."""
    for rule in ("number", "at_least"):
        assert explore(Design(rule=rule), World(runs=2, lost=1, timeouts=1, restores=0)).harm is None
