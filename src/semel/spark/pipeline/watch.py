"""Watches a query until it ends or somebody wants it to: shows its progress, and stops it at the end of a batch.

The first Ctrl-C (or SIGTERM) lets the batch that runs end, for some seconds; what is interrupted is run again by the
next start, exactly once all the same. The second one ends the process at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from semel.spark.pipeline.errors import PipelineError
from semel.spark.pipeline.failure import cause_of
from semel.spark.pipeline.progress import Shown, read_progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2
PATIENCE_S = 10.0
"""How long a batch may go on after the first Ctrl-C."""
INTERRUPTED = 130


class Stopping:
    """Set by the first signal."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def is_asked_for(self) -> bool:
        return self._event.is_set()

    def ask(self) -> None:
        self._event.set()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self._event.is_set():
            os._exit(INTERRUPTED)  # Java, the workers and the broker notice that we are gone, and end
        self.ask()  # and no more: this may have interrupted anything, a print as well

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Entered after Spark was started, which sets a handler of its own that cancels jobs."""
        before = {number: signal.signal(number, self._signalled) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def watch(
    query: StreamingQuery,
    line: Shown,
    stopping: Stopping,
    check: Callable[[], None],
    now_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Returns when the query has ended or was stopped; `check` raises if something else has ended. Raises PipelineError
    if the query failed."""
    told = _Told(query, line)
    asked_at_s: float | None = None
    while query.isActive:
        check()
        told.update(now_s())
        if stopping.is_asked_for:
            if asked_at_s is None:
                asked_at_s, batches = now_s(), line.batches
                line.tell("stopping at the end of this batch; once more ends it at once")
            is_between = not query.status["isTriggerActive"] or line.batches > batches
            if is_between or now_s() - asked_at_s > PATIENCE_S:
                _stop(query, line)
                break
        pause(POLL_S)
    told.update(now_s())
    failure = query.exception()
    if failure is not None and asked_at_s is None:
        raise PipelineError(cause_of(str(failure)))


def _stop(query: StreamingQuery, line: Shown) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        query.stop()
    except Py4JError:
        # It waits no longer than spark.sql.streaming.stopTimeout. The marker tells the next run how the commit ended.
        line.tell("the commit that is under way does not end: it is left to itself, and the next run sorts it out")


class _Told:
    """Which batches were told already."""

    def __init__(self, query: StreamingQuery, line: Shown) -> None:
        self._query = query
        self._line = line
        self._last = -1

    def update(self, now_s: float) -> None:
        for told in self._query.recentProgress:
            progress: Any = told if isinstance(told, dict) else told.__dict__
            # Between batches Spark reports the last one again, without rows.
            if progress["batchId"] > self._last and _has_run(progress):
                self._last = progress["batchId"]
                self._line.show(read_progress(progress, scans_of(self._query)), now_s)


def scans_of(query: StreamingQuery) -> dict[str, int]:
    """How often the plan of a batch reads each source, by the source's description: Spark adds up what every reading of
    it has counted. Part of its plan is reused, so this is known once it has run."""
    execution: Any = getattr(query, "_jsq", None)
    execution = None if execution is None else execution.streamingQuery().lastExecution()
    found: dict[str, int] = {}
    if execution is not None:
        leaves = execution.executedPlan().collectLeaves()
        for place in range(leaves.size()):
            leaf = leaves.apply(place)
            if leaf.getClass().getSimpleName() == "MicroBatchScanExec":
                source = leaf.stream().toString()
                found[source] = found.get(source, 0) + 1
    return found


def _has_run(progress: dict[str, Any]) -> bool:
    return "addBatch" in (progress.get("durationMs") or {})
