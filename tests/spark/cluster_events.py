"""How long batches took, and how much of that was `commit`, from the event logs that Spark writes.

Of a batch Spark tells the time of the whole, of its query's execution, and of the jobs in it. What comes between the
end of the last job and the end of the execution is the `commit` of the sink.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

_EXECUTION_END = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd"
_PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"


class BatchTime(NamedTuple):
    batch_id: int
    rows: int
    whole_ms: int
    commit_ms: int


def batch_times(folder: Path) -> list[BatchTime]:
    """Of all batches that came to their end, by all drivers that have logged there; without empty ones."""
    return [time for file in sorted(folder.iterdir()) for time in _of_one_driver(file)]


def commit_share(times: list[BatchTime]) -> float:
    """Of the time of all batches together."""
    return sum(time.commit_ms for time in times) / sum(time.whole_ms for time in times)


def medians(times: list[BatchTime]) -> tuple[float, float]:
    """ms of a batch, and ms of a commit."""
    return median(time.whole_ms for time in times), median(time.commit_ms for time in times)


def _of_one_driver(file: Path) -> list[BatchTime]:
    execution_of_job: dict[int, str] = {}
    last_job_end_ms: dict[str, int] = {}
    batch_of: dict[str, int] = {}
    commit_ms: dict[int, int] = {}
    found = []
    for event in _events(file):
        kind = event["Event"]
        if kind == "SparkListenerJobStart":
            properties = event.get("Properties") or {}
            execution, batch = properties.get("spark.sql.execution.id"), properties.get("streaming.sql.batchId")
            if execution is not None and batch is not None:
                batch_of[execution] = int(batch)
                execution_of_job[event["Job ID"]] = execution
        elif kind == "SparkListenerJobEnd" and event["Job ID"] in execution_of_job:
            execution = execution_of_job[event["Job ID"]]
            last_job_end_ms[execution] = max(event["Completion Time"], last_job_end_ms.get(execution, 0))
        elif kind == _EXECUTION_END and str(event["executionId"]) in last_job_end_ms:
            execution = str(event["executionId"])
            commit_ms[batch_of[execution]] = event["time"] - last_job_end_ms[execution]
        elif kind == _PROGRESS:
            progress = event["progress"]
            batch_id = progress["batchId"]
            if batch_id in commit_ms and _rows(progress) > 0:
                whole_ms = progress["durationMs"]["triggerExecution"]
                found.append(BatchTime(batch_id, _rows(progress), whole_ms, commit_ms[batch_id]))
    return found


def _events(file: Path) -> list[dict[str, Any]]:
    """The last line may be half a line: of a driver that was killed."""
    events = []
    for line in file.read_text().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def _rows(progress: dict[str, Any]) -> int:
    return sum(source["numInputRows"] for source in progress["sources"])
