"""Histories as lines, findings as a report, and a judgement that grows with the history, not with its square."""

from __future__ import annotations

import sys

from told_history import Told

from semel.sim.history import Client, History, Outcome
from semel.sim.judging.anomalies import MEANINGS, Kind
from semel.sim.judging.report import EXAMPLES, judge


def mixed() -> Told:
    told = Told()
    told.add_client(Client("p", "plain"))
    told.send(1, 0, transaction=1)
    told.send(2, outcome=Outcome.FAIL)
    told.abort(1)
    told.init("p")
    told.note("faults", "killed a node")
    told.read_to_end({"a-0": [(0, 1)]}, committed=True)
    return told


def test_a_history_comes_back_from_its_lines() -> None:
    told = mixed()
    lines = list(told.lines())
    again = History.from_lines(lines)
    assert list(again.lines()) == lines
    assert again.operations == told.operations
    assert judge(again) == judge(told)
    assert judge(again).forbidden_kinds() == {Kind.ABORTED_READ}


def test_every_kind_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Kind)


def test_findings_are_counted_and_a_few_are_shown() -> None:
    told = Told()
    for value in range(1, 20):
        told.send(value, value)
    told.poll({"a-0": [(20, 20)]})
    finding = told.judged().findings[Kind.LOST_WRITE]
    assert finding.count == finding.forbidden == 19
    assert len(finding.examples) == EXAMPLES


def test_a_kind_can_be_allowed_and_is_told_all_the_same() -> None:
    report = judge(mixed(), allowed=frozenset({Kind.ABORTED_READ}))
    assert report.is_clean
    assert report.findings[Kind.ABORTED_READ].allowed == 1
    assert report.findings[Kind.ABORTED_READ].first


def calls_to_judge(count: int) -> int:
    """How much Python it runs: time would say more of the machine than of the judges."""
    told = Told()
    for value in range(count):
        transaction = 1 + value // 4
        told.send(value, 2 * value, transaction=transaction)
        if value % 4 == 3:
            told.commit(transaction)
    records = [(2 * value, value) for value in range(count)]
    for process in ("a", "b"):
        for begin in range(0, count, 10):
            told.poll({"a-0": records[begin : begin + 10]}, process=process, committed=process == "a")
    calls = 0

    def count_one(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count_one)
    try:
        told.judged()
    finally:
        sys.setprofile(None)
    return calls


def test_twice_the_history_takes_about_twice_the_work() -> None:
    assert calls_to_judge(4_000) < 2.3 * calls_to_judge(2_000)
