"""What a running pipeline tells of itself: one line that changes on a terminal, elsewhere a plain line now and then, or
JSON for programs.

Numbers come from the progress that Spark reports after each batch, and from what the query observes of its own rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from shutil import get_terminal_size
from typing import Any, TextIO

_CLEAR_LINE = "\r\x1b[2K"
_PLAIN_PAUSE_S = 1.0
WRITTEN = "written"
SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class BatchProgress:
    batch_id: int
    rows_in: int
    rows_out: int
    rows_set_aside: int
    lag: int | None
    """Offsets that were there when the batch was planned, and that it did not reach; None if nobody told."""
    duration_ms: int

    @property
    def rows_per_second(self) -> float:
        return self.rows_in * 1000 / self.duration_ms if self.duration_ms > 0 else 0.0

    def told(self) -> str:
        aside = f"  {self.rows_set_aside:,} set aside" if self.rows_set_aside else ""
        lag = "unknown" if self.lag is None else f"{self.lag:,}"
        return (
            f"batch {self.batch_id}  {self.rows_in:,} rows in  {self.rows_out:,} out{aside}  "
            f"{self.rows_per_second:,.0f} rows/s  lag {lag}  {self.duration_ms / 1000:.2f} s"
        )


def read_progress(told: Mapping[str, Any], scans: Mapping[str, int]) -> BatchProgress:
    """From Spark's JSON. `scans` says how often a source was read, by its description: its rows count as often."""
    sources = told.get("sources", [])
    observed: Mapping[str, Mapping[str, Any]] = told.get("observedMetrics") or {}
    rows_in = sum(source.get("numInputRows", 0) // scans.get(source.get("description", ""), 1) for source in sources)
    lags = [_lag(source) for source in sources]
    return BatchProgress(
        batch_id=told["batchId"],
        rows_in=rows_in,
        rows_out=_observed(observed, WRITTEN),
        rows_set_aside=_observed(observed, SET_ASIDE),
        lag=None if None in lags else sum(lag for lag in lags if lag is not None),
        duration_ms=(told.get("durationMs") or {}).get("triggerExecution", told.get("batchDuration", 0)),
    )


def _observed(observed: Mapping[str, Mapping[str, Any]], name: str) -> int:
    return sum(int(metrics["rows"] or 0) for key, metrics in observed.items() if key.partition(".")[0] == name)


def _lag(source: Mapping[str, Any]) -> int | None:
    reached, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if reached is None or latest is None:
        return None
    return sum(max(offset - reached.get(place, 0), 0) for place, offset in latest.items())


def _offsets(told: Any) -> dict[tuple[str, str], int] | None:
    """Spark hands them over as a table, or as a text of one."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return None
    if not isinstance(told, dict):
        return None
    return {
        (topic, number): offset
        for topic, partitions in told.items()
        if isinstance(partitions, dict)
        for number, offset in partitions.items()
    }


class Shown:
    """`show` is called after each batch. Totals are those of this run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.batches = self.rows_in = self.rows_out = self.rows_set_aside = 0

    def show(self, progress: BatchProgress, now_s: float) -> None:
        self.batches += 1
        self.rows_in += progress.rows_in
        self.rows_out += progress.rows_out
        self.rows_set_aside += progress.rows_set_aside

    def tell(self, text: str) -> None:
        """Something that has happened beside the batches."""
        raise NotImplementedError

    def end(self) -> None:
        """There will be no other batch."""
        raise NotImplementedError


class JsonLines(Shown):
    """For programs: an object a line, whose `event` is `note`, `batch` or `end`."""

    def show(self, progress: BatchProgress, now_s: float) -> None:
        super().show(progress, now_s)
        self._put("batch", **asdict(progress), rows_per_second=round(progress.rows_per_second, 1))

    def tell(self, text: str) -> None:
        self._put("note", text=text)

    def end(self) -> None:
        totals = {"rows_in": self.rows_in, "rows_out": self.rows_out, "rows_set_aside": self.rows_set_aside}
        self._put("end", batches=self.batches, **totals)

    def _put(self, event: str, **facts: object) -> None:
        self._stream.write(json.dumps({"event": event, **facts}, ensure_ascii=False) + "\n")
        self._stream.flush()


class ProgressLine(Shown):
    """For people."""

    def __init__(self, stream: TextIO, *, is_terminal: bool) -> None:
        super().__init__(stream)
        self._is_terminal = is_terminal
        self._shown_at_s = float("-inf")
        self._waiting: BatchProgress | None = None
        self._is_line_open = False

    def show(self, progress: BatchProgress, now_s: float) -> None:
        super().show(progress, now_s)
        if self._is_terminal:
            # A line that goes over the edge could not be cleared as a whole.
            self._stream.write(_CLEAR_LINE + progress.told()[: get_terminal_size().columns - 1])
            self._stream.flush()
            self._is_line_open = True
        elif now_s - self._shown_at_s >= _PLAIN_PAUSE_S:
            self._shown_at_s = now_s
            self._waiting = None
            self.tell(progress.told())
        else:
            self._waiting = progress

    def tell(self, text: str) -> None:
        """A line of its own."""
        if self._is_line_open:
            self._stream.write("\n")
            self._is_line_open = False
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        """The last batch is always shown, and the sum of all."""
        if self._waiting is not None:
            self.tell(self._waiting.told())
            self._waiting = None
        aside = f", {self.rows_set_aside:,} set aside" if self.rows_set_aside else ""
        plural = "" if self.batches == 1 else "es"
        self.tell(f"{self.batches:,} batch{plural}, {self.rows_in:,} rows in, {self.rows_out:,} rows out{aside}")
