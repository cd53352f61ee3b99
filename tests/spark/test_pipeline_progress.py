"""What is shown of a running pipeline, from what Spark reports; why it failed, from what Spark says."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from semel.spark.pipeline.failure import cause_of
from semel.spark.pipeline.progress import BatchProgress, JsonLines, ProgressLine, read_progress

TOLD: dict[str, Any] = {
    "batchId": 7,
    "durationMs": {"addBatch": 300, "triggerExecution": 500},
    "sources": [
        {
            "description": "source@1",
            "numInputRows": 2000,
            "endOffset": {"orders": {"0": 1000, "1": 500}},
            "latestOffset": '{"orders": {"0": 1100, "1": 500, "2": 40}}',
        }
    ],
    "observedMetrics": {
        "written": {"rows": 900},
        "set-aside.0": {"rows": 60},
        "set-aside.1": {"rows": 40},
        "read-0": {"rows": 1000},
    },
}


def test_a_batch_is_told_in_rows_speed_lag_and_time() -> None:
    # The dead letters are found by reading the source a second time, and Spark counts both.
    progress = read_progress(TOLD, {"source@1": 2})

    assert progress == BatchProgress(7, 1000, 900, 100, 140, 500)
    assert progress.told() == "batch 7  1,000 rows in  900 out  100 set aside  2,000 rows/s  lag 140  0.50 s"


def test_lag_is_unknown_if_spark_does_not_tell_the_latest_offsets() -> None:
    source = {**TOLD["sources"][0], "latestOffset": None}
    progress = read_progress({**TOLD, "sources": [source], "observedMetrics": {}}, {})

    assert progress.lag is None
    assert progress.told() == "batch 7  2,000 rows in  0 out  4,000 rows/s  lag unknown  0.50 s"


def batch(number: int) -> BatchProgress:
    return BatchProgress(number, 10, 5, 0, 0, 1000)


def test_a_terminal_has_one_line_that_changes() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, is_terminal=True)
    line.show(batch(0), 0.0)
    line.show(batch(1), 0.1)
    line.tell("stopping")
    line.end()

    first, second = (batch(number).told() for number in (0, 1))
    assert stream.getvalue() == (f"\r\x1b[2K{first}\r\x1b[2K{second}\nstopping\n2 batches, 20 rows in, 10 rows out\n")


def test_a_line_that_is_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = io.StringIO()
    ProgressLine(stream, is_terminal=True).show(batch(0), 0.0)

    assert stream.getvalue() == f"\r\x1b[2K{batch(0).told()[:19]}"


def test_elsewhere_lines_come_once_a_second_and_the_last_one_always() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, is_terminal=False)
    for number, now_s in enumerate((0.0, 0.2, 0.9, 1.0, 1.5)):
        line.show(batch(number), now_s)
    line.end()

    shown = [text.split()[1] for text in stream.getvalue().splitlines()[:-1]]
    assert shown == ["0", "3", "4"]
    assert stream.getvalue().endswith("5 batches, 50 rows in, 25 rows out\n")


def test_programs_get_a_line_of_json_for_every_batch_and_event() -> None:
    stream = io.StringIO()
    lines = JsonLines(stream)
    lines.tell("begins")
    lines.show(batch(0), 0.0)
    lines.show(batch(1), 0.0)
    lines.end()

    note, _, second, end = map(json.loads, stream.getvalue().splitlines())
    assert note == {"event": "note", "text": "begins"}
    assert second == {
        "event": "batch",
        "batch_id": 1,
        "rows_in": 10,
        "rows_out": 5,
        "rows_set_aside": 0,
        "lag": 0,
        "duration_ms": 1000,
        "rows_per_second": 10.0,
    }
    assert end == {"event": "end", "batches": 2, "rows_in": 20, "rows_out": 10, "rows_set_aside": 0}


TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 3'
PLAN = "\n=== Streaming Query ===\nIdentifier: x\nLogical Plan:\n+- Project"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "[USER_RAISED_EXCEPTION] semel: a record cannot be read: topic a, partition 0, offset 1: x SQLSTATE: P0001",
            "a record cannot be read: topic a, partition 0, offset 1: x",
        ),
        (
            "[CAST_INVALID_INPUT] The value 'a1' cannot be cast. SQLSTATE: 22018\n== SQL (line 1) ==\nSELECT\n^^^\n",
            "The value 'a1' cannot be cast.\n== SQL (line 1) ==\nSELECT\n^^^",
        ),
        (
            "[PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call last):\n"
            '  File "sink.py", line 86, in write\n    raise\n'
            "semel.spark.sink_errors.RecordRefused: a row for topic 'a': too large (mend the query)\n SQLSTATE: 38000",
            "a row for topic 'a': too large (mend the query)",
        ),
        (
            f"An error: {TRACEBACK}, in f\nZeroDivisionError: division by zero",
            "ZeroDivisionError: division by zero",
        ),
        (
            'Traceback (most recent call last):\n  File "x.py", line 3\nsemel.A: first\n\nDuring handling, another:\n\n'
            'Traceback (most recent call last):\n  File "x.py", line 9\nsemel.B: second\nin two lines',
            "second\nin two lines",
        ),
        ("Something else", "Something else"),
    ],
)
def test_the_cause_is_found_in_what_spark_says(text: str, cause: str) -> None:
    assert cause_of(text + PLAN) == cause
