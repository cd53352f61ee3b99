"""How a cost grows with what a broker holds: points of one line, and its row in a table."""

from __future__ import annotations

from typing import NamedTuple

from measured import Measured

_JUDGED_FOLD = 100


class Point(NamedTuple):
    """What was measured where `size` of something was there: several tries.

    The lowest of them counts: whatever else goes on in a machine makes work dearer, never cheaper.
    """

    size: float
    costs: tuple[float, ...]

    @property
    def cost(self) -> float:
        return min(self.costs)


class Curve(NamedTuple):
    """What one piece of the same work costs; at the end it is meant to be at most `goal` times the lowest of it.

    Not the first: where work is shared by what grows, the first point bears what is there only once. And the lowest of
    the last hundredfold: what grows with something grows there, while one of a kind is in the processor's caches, and
    many are not.
    """

    against: str
    what: str
    unit: str
    points: list[Point]
    goal: float

    @property
    def lowest(self) -> Point:
        judged = [point for point in self.points if point.size * _JUDGED_FOLD >= self.points[-1].size]
        return min(judged, key=lambda point: point.cost)

    def row(self) -> Measured:
        lowest, last = self.lowest, self.points[-1]
        return Measured(
            f"{self.what}, at {size_text(last.size)} {self.against}",
            last.cost,
            lowest.cost,
            f"at {size_text(lowest.size)}",
            self.unit,
            _spread(last),
            self.goal,
            less_is_better=True,
            their_spread=_spread(lowest),
        )


def _spread(point: Point) -> float:
    return (max(point.costs) - min(point.costs)) / max(point.cost, 1e-9)


def size_text(size: float) -> str:
    return f"{size:,.0f}" if size >= 10 or size == int(size) else f"{size:.2g}"
