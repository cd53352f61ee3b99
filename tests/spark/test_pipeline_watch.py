"""Watching a query, one that is made up: when it is stopped, what is shown of it, and what its failure becomes."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from semel.spark.pipeline.errors import PipelineError
from semel.spark.pipeline.progress import ProgressLine
from semel.spark.pipeline.watch import PATIENCE_S, Stopping, watch


class MadeUpQuery:
    """Its batches end at the times given, one after the other; after the last it is idle, or done."""

    def __init__(self, *ends_s: float, is_done_after: bool = False) -> None:
        self.now_s = 0.0
        self.stopped_at_s: float | None = None
        self.stop_error: Exception | None = None
        self.failure: str | None = None
        self._ends_s = ends_s
        self._is_done_after = is_done_after

    @property
    def _done(self) -> int:
        return sum(end_s <= self.now_s for end_s in self._ends_s)

    @property
    def isActive(self) -> bool:
        is_done = self._is_done_after and self._done == len(self._ends_s)
        return self.stopped_at_s is None and not is_done

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self._done < len(self._ends_s)}

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        return [
            {"batchId": number, "durationMs": {"addBatch": 1, "triggerExecution": 1000}, "sources": []}
            for number in range(self._done)
        ]

    def stop(self) -> None:
        if self.stop_error is not None:
            raise self.stop_error
        self.stopped_at_s = self.now_s

    def exception(self) -> str | None:
        return self.failure

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def watched(stream: io.StringIO) -> Callable[..., None]:
    def run(query: MadeUpQuery, *, asked_at_s: float | None = None, check: Callable[[], None] = lambda: None) -> None:
        stopping = Stopping()

        def pause(seconds: float) -> None:
            query.pause(seconds)
            if asked_at_s is not None and query.now_s >= asked_at_s:
                stopping.ask()

        made_up: Any = query
        watch(made_up, ProgressLine(stream, is_terminal=False), stopping, check, lambda: query.now_s, pause)

    return run


def test_it_is_watched_to_its_end(watched: Callable[..., None], stream: io.StringIO) -> None:
    query = MadeUpQuery(1, 3, 5, is_done_after=True)
    watched(query)

    assert query.stopped_at_s is None
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["0", "1", "2"]


def test_a_query_that_waits_for_data_is_stopped_at_once(watched: Callable[..., None]) -> None:
    query = MadeUpQuery(1)
    watched(query, asked_at_s=20)

    assert query.stopped_at_s == pytest.approx(20, abs=0.5)


def test_a_batch_under_way_may_end(watched: Callable[..., None], stream: io.StringIO) -> None:
    query = MadeUpQuery(1, 7, 100)
    watched(query, asked_at_s=3)

    assert query.stopped_at_s == pytest.approx(7, abs=0.5), "the next batch has begun, and is not waited for"
    assert "stopping at the end of this batch" in stream.getvalue()
    assert "batch 1 " in stream.getvalue()


def test_a_batch_that_takes_too_long_is_interrupted(watched: Callable[..., None]) -> None:
    query = MadeUpQuery(1, 1000)
    watched(query, asked_at_s=3)

    assert query.stopped_at_s == pytest.approx(3 + PATIENCE_S, abs=0.5)


def test_a_commit_that_cannot_be_interrupted_is_left_to_itself(
    watched: Callable[..., None], stream: io.StringIO
) -> None:
    from py4j.protocol import Py4JError

    query = MadeUpQuery(1, 1000)
    query.stop_error = Py4JError("TimeoutException")
    watched(query, asked_at_s=3)

    assert "the next run sorts it out" in stream.getvalue()


def test_a_failure_is_told_by_its_cause(watched: Callable[..., None]) -> None:
    query = MadeUpQuery(1, is_done_after=True)
    query.failure = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n=== Streaming Query ===\nplan"

    with pytest.raises(PipelineError, match=r"^Division by zero\.$"):
        watched(query)


def test_a_failure_that_comes_of_stopping_is_none(watched: Callable[..., None]) -> None:
    query = MadeUpQuery(1, 1000)
    query.failure = "interrupted"

    watched(query, asked_at_s=3)


def test_a_broker_that_ended_ends_the_watch(watched: Callable[..., None]) -> None:
    def check() -> None:
        raise PipelineError("the embedded broker has ended")

    with pytest.raises(PipelineError, match="the embedded broker has ended"):
        watched(MadeUpQuery(1), check=check)
