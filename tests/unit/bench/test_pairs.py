"""What `make pairs` says of ratios."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

from pairs import interval


def test_the_interval_holds_the_mean_and_is_the_same_for_the_same_ratios() -> None:
    found = interval([0.9, 1.0, 1.1, 1.05, 0.95])
    assert found.low < found.mean < found.high
    assert found == interval([0.9, 1.0, 1.1, 1.05, 0.95])


def test_twice_as_much_and_half_as_much_have_a_mean_of_one() -> None:
    assert interval([2.0, 0.5] * 10).mean == pytest.approx(1.0)


def test_ratios_that_all_say_the_same_leave_no_doubt() -> None:
    assert interval([1.25] * 20) == pytest.approx((1.25, 1.25, 1.25))


def test_more_pairs_narrow_the_interval() -> None:
    few, many = interval([0.9, 1.1] * 3), interval([0.9, 1.1] * 30)
    assert many.high - many.low < few.high - few.low
