"""Power loss at every single disk call of a busy log: what was acknowledged is there, and nothing that is torn.

`SEMEL_POWER_LOSS_ROUNDS` and `SEMEL_POWER_LOSS_SEEDS` enlarge the work.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from log_judge import judge_restart, restart
from log_workload import run_until_crash

ROUNDS = int(os.environ.get("SEMEL_POWER_LOSS_ROUNDS", "7"))
SEEDS = int(os.environ.get("SEMEL_POWER_LOSS_SEEDS", "1"))
LIVES = 2


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments here are small: so are the blocks in which they are read, or no batch would ever lie across two."""
    monkeypatch.setattr("semel.log.segment._SCAN_BYTES", 256)
    monkeypatch.setattr("semel.log.segment._LOCATE_BYTES", 128)


def calls_of_a_whole_run() -> int:
    disk, _ = run_until_crash(1, LIVES, ROUNDS)
    return disk.calls


@pytest.mark.timeout(900)
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_power_loss_at_any_disk_call_loses_nothing_acknowledged_and_serves_nothing_torn(when: Any) -> None:
    for call in range(1, calls_of_a_whole_run() + 1):
        disk, histories = run_until_crash(1, LIVES, ROUNDS, call, when)
        for seed in range(SEEDS):
            try:
                judge_restart(disk.after_power_loss(call * 100 + seed), histories)
            except BaseException as failure:
                failure.add_note(f"power was lost {when} call {call}, survival seed {call * 100 + seed}")
                failure.add_note(f"last calls: {[tuple(c) for c in list(disk.log)[-4:]]}")
                raise


def test_a_kill_at_any_disk_call_loses_nothing_at_all() -> None:
    for call in range(1, calls_of_a_whole_run() + 1, 9):
        disk, histories = run_until_crash(1, LIVES, ROUNDS, call, "before")
        judge_restart(disk.after_kill(), histories)


def test_a_second_power_loss_while_the_first_is_being_recovered_from_changes_nothing() -> None:
    calls = calls_of_a_whole_run()
    for call in range(calls // 6, calls, calls // 6):
        disk, histories = run_until_crash(1, LIVES, ROUNDS, call, "during")
        image = disk.after_power_loss(call)
        for again in range(1, restart(image.after_power_loss(0), histories) + 1):
            restarted = image.after_power_loss(0)
            restarted.crash_at(again, "during")
            restart(restarted, histories)
            judge_restart(restarted.after_power_loss(again), histories)
