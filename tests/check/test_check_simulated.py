"""The whole workload under all faults, in the simulated world: nothing is found, and one seed is one history."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from simulated_check import SMALL, simulated_check

from semel.sim.history import Finish, History, Note, Send
from semel.sim.judging.report import judge
from semel.sim.workload.semantics import Semantics, Way

EVER_FAILED: tuple[int, ...] = ()
"""Seeds that have found something, now mended."""


def digest(history: History) -> str:
    return hashlib.sha256("\n".join(history.lines()).encode()).hexdigest()


@pytest.mark.parametrize("seed", [1, 2, *EVER_FAILED])
def test_our_broker_and_client_hold_what_they_promise_under_all_faults(seed: int) -> None:
    history = simulated_check(seed, 6).access.history
    report = judge(history)
    assert report.is_clean, report
    finished = [operation for operation in history.operations if isinstance(operation, Finish)]
    assert finished
    assert all(operation.is_ok for operation in finished), "everybody got to the end"
    assert sum(isinstance(operation, Send) and operation.is_ok for operation in history.operations) > 200
    struck = [operation.text for operation in history.operations if isinstance(operation, Note)]
    assert any(text.startswith("kill") for text in struck) or any("requests" in text for text in struck)


def test_one_seed_is_one_history_in_every_process() -> None:
    """Byte for byte; hashes of texts differ from process to process, and must not matter."""
    here = digest(simulated_check(5, 1).access.history)
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    program = (
        f"import sys; sys.path[:0] = {folders!r}\n"
        "from simulated_check import simulated_check\n"
        "from test_check_simulated import digest\n"
        "print(digest(simulated_check(5, 1).access.history))\n"
    )
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert there.stdout.strip() == here
    assert digest(simulated_check(6, 1).access.history) != here


def test_three_semantics_show_what_each_loses_and_doubles_under_the_same_faults() -> None:
    lost, doubled = 0, 0
    for seed in range(1, 6):
        stage = simulated_check(seed, 8, load=SMALL, stage=lambda access: Semantics(access, list(Way)))
        assert isinstance(stage, Semantics)
        tallies = stage.tallies()
        report = judge(stage.access.history)
        assert report.is_clean, report
        assert all(tally.sent > 50 for tally in tallies.values())
        assert tallies[Way.AT_LEAST_ONCE].lost == 0
        assert (tallies[Way.EXACTLY_ONCE].lost, tallies[Way.EXACTLY_ONCE].duplicated) == (0, 0)
        assert tallies[Way.AT_MOST_ONCE].duplicated == 0
        lost += tallies[Way.AT_MOST_ONCE].lost
        doubled += tallies[Way.AT_LEAST_ONCE].duplicated
        if lost and doubled:
            return
    pytest.fail(f"at most once has lost {lost}, at least once has doubled {doubled}")
