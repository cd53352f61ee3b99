"""The judge of the chaos notices what it is there for, and the gate lets through all but what is held."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from chaos_gate import Gate
from chaos_plan import ending, misfortunes_without_end
from chaos_world import Verdict

from semel.spark.steps import Step, parse

WANTED = [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([b"a", b"b", b"d"], Verdict(lost=1)),
        ([], Verdict(lost=4)),
        ([b"a", b"b", b"b", b"c", b"d"], Verdict(duplicated=1)),
        ([b"a", b"b", b"a", b"b", b"c", b"d"], Verdict(duplicated=2)),
        ([b"a", b"c", b"b", b"d"], Verdict(out_of_order=1)),
        ([b"a", b"b", b"c", b"d", b"?"], Verdict(wrong=1)),
        ([b"b", b"a", b"a", b"c"], Verdict(lost=1, duplicated=1, out_of_order=1)),
    ],
)
def test_every_fault_is_counted(found: list[bytes], fault: Verdict) -> None:
    verdict = Verdict()
    verdict.compare(WANTED, found)
    assert verdict == replace(fault, records=len(found))
    assert not verdict.is_exactly_once


def test_what_is_right_is_called_right() -> None:
    verdict = Verdict()
    for _ in range(2):
        verdict.compare(WANTED, WANTED)
    assert verdict == Verdict(records=8)
    assert verdict.is_exactly_once


def test_a_gate_holds_one_step_and_lets_the_others_through(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    planned = {entry.step: Path(entry.argument) for entry in parse(gate.plan)}
    assert set(planned) == set(Step)
    is_let_through = threading.Event()
    try:
        gate.hold(Step.MARKED)
        planned[Step.MARKED].write_text("4711")
        planned[Step.BEGUN].write_text("4712")
        while planned[Step.BEGUN].exists():
            is_let_through.wait(0.001)
        assert gate.held() == 4711
        gate.release()
        while planned[Step.MARKED].exists():
            is_let_through.wait(0.001)
        assert gate.held() is None
    finally:
        gate.close()


def test_a_seed_draws_the_same_misfortunes_again() -> None:
    def names(seed: int) -> list[str]:
        drawn = misfortunes_without_end(seed)
        return [repr(next(drawn)) for _ in range(100)]

    assert names(3) == names(3) != names(4)


def test_failures_are_told_apart() -> None:
    text = "terminated with exception: Failed: Traceback\nsemel.spark.sink_errors.Overtaken: another (advice)\n"
    assert ending(text) == "Overtaken"
    assert ending("terminated with exception: Python worker exited unexpectedly (crashed).") == "a worker died"
    assert ending("[STREAM_FAILED] terminated with exception: [CONCURRENT_STREAM_LOG_UPDATE] Con") == (
        "CONCURRENT_STREAM_LOG_UPDATE"
    )
