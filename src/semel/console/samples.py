"""Numbers over time, as many as a chart shows; older ones fall out."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

_POINTS = 360
_MAX_SERIES = 2000


class Series:
    """Times in milliseconds and values, oldest first."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, float]] = deque(maxlen=_POINTS)

    def add(self, at_ms: int, value: float) -> None:
        self._points.append((at_ms, value))

    @property
    def last(self) -> float | None:
        return self._points[-1][1] if self._points else None

    @property
    def rate(self) -> float | None:
        """Change in a second over the last minute, or what there is of it."""
        if len(self._points) < 2:
            return None
        last_ms, last = self._points[-1]
        first_ms, first = next(point for point in self._points if last_ms - point[0] <= 60_000)
        return (last - first) * 1000 / (last_ms - first_ms) if last_ms > first_ms else None

    def document(self) -> list[list[float]]:
        return [[at_ms for at_ms, _ in self._points], [value for _, value in self._points]]


class SeriesByName:
    """The series that nobody has added to for longest go first."""

    def __init__(self) -> None:
        self._series: OrderedDict[str, Series] = OrderedDict()

    def add(self, name: str, at_ms: int, value: float) -> None:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = Series()
            while len(self._series) > _MAX_SERIES:
                self._series.popitem(last=False)
        self._series.move_to_end(name)
        series.add(at_ms, value)

    def get(self, name: str) -> Series:
        return self._series.get(name) or Series()

    def keep(self, is_there: Callable[[str], bool]) -> None:
        for name in [name for name in self._series if not is_there(name)]:
            del self._series[name]
