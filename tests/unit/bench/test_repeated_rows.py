"""A row whose spread is too wide is measured again, and the report says so."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

from cases import Case, Progress
from measured import Measured, measured, table
from repeats import repeating, steady

NARROW, OTHER_NARROW = (95.0, 100.0, 105.0), (96.0, 100.0, 106.0)
WIDE, WIDER, WIDEST = (80.0, 100.0, 140.0), (60.0, 100.0, 140.0), (20.0, 100.0, 140.0)


def row(values: Sequence[float], theirs: Sequence[float] = NARROW, name: str = "one") -> Measured:
    return measured(name, values, theirs, beside="kafka", unit="MB/s", goal=1.0)


class Again:
    """Measurements in turn, and how many of them were asked for."""

    def __init__(self, *several: list[Measured]) -> None:
        self._left = list(several)
        self.said: list[str] = []

    def __call__(self) -> list[Measured]:
        return self._left.pop(0)

    def of(self, first: list[Measured]) -> list[Measured]:
        return steady(first, self, self.said.append)

    @property
    def left(self) -> int:
        return len(self._left)


def test_narrow_rows_are_measured_once() -> None:
    again = Again()
    assert again.of([row(NARROW), row((75.0, 100.0, 125.0))]) == [row(NARROW), row((75.0, 100.0, 125.0))]
    assert again.said == []


def test_a_wide_row_is_measured_again_and_others_stay_as_they_were() -> None:
    again = Again([row(OTHER_NARROW), row(OTHER_NARROW, name="two")])
    found = again.of([row(WIDE), row(NARROW, name="two")])
    assert found == [row(OTHER_NARROW)._replace(times=2), row(NARROW, name="two")]
    assert again.said == ["measuring again: one (spread 60%)"]


def test_the_other_side_may_be_the_wide_one() -> None:
    again = Again([row(NARROW, OTHER_NARROW)])
    assert again.of([row(NARROW, WIDE)]) == [row(NARROW, OTHER_NARROW)._replace(times=2)]


def test_a_row_that_stays_wide_is_measured_three_times_and_the_narrowest_counts() -> None:
    again = Again([row(WIDE)], [row(WIDEST)], [row(NARROW)])
    assert again.of([row(WIDER)]) == [row(WIDE)._replace(times=3)]
    assert again.left == 1, "not a fourth time"


def test_the_table_says_how_often_a_row_was_measured() -> None:
    assert "| one (measured 3 times) | 100 MB/s |" in table([row(WIDE)._replace(times=3)])
    assert "| one | 100 MB/s |" in table([row(WIDE)])


def test_steps_of_a_case_that_is_measured_again_are_expected(capsys: pytest.CaptureFixture[str]) -> None:
    left = [[row(WIDE)], [row(NARROW)]]

    def run(tell: Progress) -> list[Measured]:
        tell("first step")
        tell("second step")
        return left.pop(0)

    assert repeating(Case("case", 2, run)).run(Progress(2)) == [row(NARROW)._replace(times=2)]
    assert [line.split(", ")[0] for line in capsys.readouterr().err.splitlines()] == [
        "[1 of 2",
        "[2 of 2",
        "[2 of 2",
        "[3 of 4",
        "[4 of 4",
    ]
