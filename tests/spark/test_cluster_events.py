"""The share of `commit` is read from Spark's event logs as it stands there, also from those of killed drivers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster_events import BatchTime, batch_times, commit_share, medians

SQL = "org.apache.spark.sql.execution.ui."
PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"


def batch(number: int, *, began_ms: int, tasks_ms: int, commit_ms: int, rows: int = 10) -> list[dict[str, Any]]:
    """As Spark logs one: two executions, the inner one with two jobs, and the query's progress."""
    outer, inner, jobs = 2 * number, 2 * number + 1, (2 * number, 2 * number + 1)
    properties = {"spark.sql.execution.id": str(inner), "streaming.sql.batchId": str(number)}
    end_ms = began_ms + tasks_ms + commit_ms
    duration = {"triggerExecution": tasks_ms + commit_ms, "addBatch": tasks_ms + commit_ms}
    progress = {"batchId": number, "durationMs": duration, "sources": [{"numInputRows": rows}]}
    return [
        {"Event": SQL + "SparkListenerSQLExecutionStart", "executionId": outer, "time": began_ms},
        {"Event": SQL + "SparkListenerSQLExecutionStart", "executionId": inner, "time": began_ms},
        {"Event": "SparkListenerJobStart", "Job ID": jobs[0], "Properties": properties},
        {"Event": "SparkListenerJobEnd", "Job ID": jobs[0], "Completion Time": began_ms + tasks_ms // 2},
        {"Event": "SparkListenerJobStart", "Job ID": jobs[1], "Properties": properties},
        {"Event": "SparkListenerJobEnd", "Job ID": jobs[1], "Completion Time": began_ms + tasks_ms},
        {"Event": SQL + "SparkListenerSQLExecutionEnd", "executionId": inner, "time": end_ms},
        {"Event": SQL + "SparkListenerSQLExecutionEnd", "executionId": outer, "time": end_ms + 1},
        {"Event": PROGRESS, "progress": progress},
    ]


def write(file: Path, events: list[dict[str, Any]], rest: str = "") -> None:
    file.write_text("".join(json.dumps(event) + "\n" for event in events) + rest)


def test_commit_is_what_follows_the_last_job(tmp_path: Path) -> None:
    events = batch(0, began_ms=1000, tasks_ms=300, commit_ms=100) + batch(1, began_ms=2000, tasks_ms=100, commit_ms=20)
    write(tmp_path / "app-1", events)
    times = batch_times(tmp_path)

    assert times == [BatchTime(0, 10, 400, 100), BatchTime(1, 10, 120, 20)]
    assert commit_share(times) == 120 / 520
    assert medians(times) == (260, 60)


def test_a_batch_counts_for_the_driver_that_has_ended_it(tmp_path: Path) -> None:
    killed = batch(0, began_ms=1000, tasks_ms=300, commit_ms=100)[:-3]
    write(tmp_path / "app-1.inprogress", killed, rest='{"Event": "SparkListenerJo')
    write(tmp_path / "app-2", batch(0, began_ms=5000, tasks_ms=200, commit_ms=50))

    assert batch_times(tmp_path) == [BatchTime(0, 10, 250, 50)]


def test_empty_batches_do_not_count(tmp_path: Path) -> None:
    write(tmp_path / "app-1", batch(0, began_ms=1000, tasks_ms=300, commit_ms=100, rows=0))

    assert batch_times(tmp_path) == []
