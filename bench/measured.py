"""A row of a table: one thing beside another of the same run, with the spread and where it is meant to get."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Measured(NamedTuple):
    """`ratio` is ours : theirs; `goal` is what it should at least be, or at most where `less_is_better`.

    `times` is how often all of it was measured: more than once if the spread was too wide.
    """

    name: str
    ours: float
    theirs: float | None
    beside: str
    unit: str
    spread: float
    goal: float | None = None
    less_is_better: bool = False
    their_spread: float | None = None
    times: int = 1

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.theirs else None

    @property
    def widest(self) -> float:
        """The wider of the two spreads."""
        return max(self.spread, self.their_spread or 0.0)

    @property
    def is_reached(self) -> bool | None:
        if self.goal is None or self.ratio is None:
            return None
        return self.ratio <= self.goal if self.less_is_better else self.ratio >= self.goal


def measured(
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float] = (),
    *,
    beside: str = "",
    unit: str,
    goal: float | None = None,
    less_is_better: bool = False,
) -> Measured:
    """Medians; the spread of either side is from its lowest to its highest, as a share of its median."""
    median, spread = _middle(ours)
    other, their_spread = _middle(theirs) if theirs else (None, None)
    return Measured(name, median, other, beside, unit, spread, goal, less_is_better, their_spread)


def _middle(values: Sequence[float]) -> tuple[float, float]:
    median = statistics.median(values)
    return median, (max(values) - min(values)) / median if median else 0.0


def table(rows: Sequence[Measured]) -> str:
    lines = ["| | semel | spread | beside | it has | spread | ratio | goal |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        goal = "" if row.goal is None else f"{'<=' if row.less_is_better else '>='} {row.goal:g}"
        mark = {None: "", True: " ok", False: " **missed**"}[row.is_reached]
        theirs = "" if row.theirs is None else f"{number(row.theirs)} {row.unit}"
        again = f" (measured {row.times} times)" if row.times > 1 else ""
        their_spread = "" if row.their_spread is None else f"{row.their_spread:.0%}"
        lines.append(
            f"| {row.name}{again} | {number(row.ours)} {row.unit} | {row.spread:.0%} | {row.beside} | {theirs} "
            f"| {their_spread} | {ratio} | {goal}{mark} |"
        )
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
