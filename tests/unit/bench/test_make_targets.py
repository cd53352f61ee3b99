"""Which tests `make test` chooses: none that are skipped because they start Spark or need Maven."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[3] / "Makefile"
MARKS = ("spark", "kafka", "alone")


def chosen(marks: set[str]) -> int:
    """By how many of its commands a test with these marks is chosen."""
    target = re.search(r"^test:.*\n((?:\t.*\n)+)", MAKEFILE.read_text(), re.MULTILINE)
    assert target is not None
    expressions = re.findall(r'-m "([^"]+)"', target[1])
    return sum(eval(expression, {mark: mark in marks for mark in MARKS}) for expression in expressions)


@pytest.mark.parametrize("marks", [{"spark"}, {"kafka"}, {"spark", "kafka"}, {"alone", "kafka"}, {"alone", "spark"}])
def test_what_needs_spark_or_maven_is_left_out(marks: set[str]) -> None:
    assert chosen(marks) == 0


@pytest.mark.parametrize("marks", [set(), {"alone"}])
def test_everything_else_runs_once(marks: set[str]) -> None:
    assert chosen(marks) == 1
