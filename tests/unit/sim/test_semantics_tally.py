"""What was lost and doubled, counted from a history told by hand."""

from __future__ import annotations

import random

from told_history import Told

from semel.sim.history import Outcome
from semel.sim.workload.access import Access, Load
from semel.sim.workload.semantics import Lane, Tally, Way


def no_host(name: str) -> None:
    raise AssertionError("nobody is asked")


def tally(told: Told) -> Tally:
    access = Access(told, no_host, {2: "nowhere:1"}, random.Random, "run", Load(partitions=2))  # type: ignore[arg-type]
    return Lane(access, Way.AT_LEAST_ONCE).tally(told)


def two_sent() -> Told:
    told = Told()
    for value in (1, 2):
        told.send(value, value, process="at-least-once-source", place="run-at-least-once-in-0")
    return told


def result(told: Told, value: int, source: int, outcome: Outcome = Outcome.OK) -> None:
    told.send(value, process="at-least-once-worker.1", place="run-at-least-once-out-1", source=source, outcome=outcome)


def read(told: Told, *records: tuple[int, int], committed: bool = True) -> None:
    told.poll({"run-at-least-once-out-1": records}, committed=committed)


def test_one_result_each_is_neither_lost_nor_doubled() -> None:
    told = two_sent()
    result(told, 11, 1)
    result(told, 12, 2, Outcome.INFO)
    read(told, (0, 11), (1, 12))
    read(told, (0, 11), (1, 12))
    assert tally(told) == Tally(sent=2, lost=0, duplicated=0)


def test_a_record_without_a_result_that_can_be_read_is_lost() -> None:
    told = two_sent()
    result(told, 11, 1)
    result(told, 12, 2)
    read(told, (0, 11))
    read(told, (1, 12), committed=False)
    assert tally(told) == Tally(sent=2, lost=1, duplicated=0)


def test_two_results_or_one_that_stands_twice_are_doubled() -> None:
    told = two_sent()
    result(told, 11, 1)
    result(told, 12, 2)
    result(told, 13, 2)
    read(told, (0, 11), (1, 11), (2, 12), (3, 13))
    assert tally(told) == Tally(sent=2, lost=0, duplicated=2)


def test_what_others_sent_or_read_does_not_count() -> None:
    told = two_sent()
    told.send(3, 0, process="exactly-once-source", place="run-exactly-once-in-0")
    told.send(4, 3, process="last-run-at-least-once-in", place="run-at-least-once-in-0")
    result(told, 11, 1)
    result(told, 12, 2)
    result(told, 14, 4)
    read(told, (0, 11), (1, 12), (2, 14))
    told.poll({"run-exactly-once-out-1": [(5, 11)]}, committed=True)
    assert tally(told) == Tally(sent=2, lost=0, duplicated=0)
