"""What Kafka's performance tools print, and what the bench takes from it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

from perf_tools import committed, read, sent

PRODUCER = """\
250000 records sent, 50000.0 records/sec (47.68 MB/sec), 78.8 ms avg latency, 436.0 ms max latency.
400000 records sent, 80000.0 records/sec (76.29 MB/sec), 78.8 ms avg latency, 436.0 ms max latency.
1000000 records sent, 71428.6 records/sec (68.12 MB/sec), 78.84 ms avg latency, 436.00 ms max latency, 12 ms 50th, \
385 ms 95th, 409 ms 99th, 416 ms 99.9th.
"""
CONSUMER = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-01-01 18:47:49:605, 2026-01-01 18:47:54:242, 286.1242, 61.7046, 300024, 64702.1781, 3496, 1141, 250.7662, \
262948.2910
"""


def test_the_first_line_of_the_producer_is_its_start_and_does_not_count() -> None:
    assert sent(PRODUCER) == (pytest.approx(750_000 * 1000 / 1e6 / (14 - 5)), 12, 409)


def test_a_producer_that_prints_one_line_is_judged_by_that() -> None:
    assert sent(PRODUCER.splitlines()[2]) == (pytest.approx(71.4286), 12, 409)


def test_a_producer_that_tells_only_of_intervals_has_told_nothing() -> None:
    with pytest.raises(ValueError, match="told nothing"):
        sent(PRODUCER.splitlines()[0])


def test_the_time_that_the_consumer_waited_for_its_group_does_not_count() -> None:
    assert read(CONSUMER) == (pytest.approx(250.7662 * 1.048576), 300_024)


def test_a_consumer_that_prints_only_the_names_has_told_nothing() -> None:
    with pytest.raises(ValueError, match="told nothing"):
        read(CONSUMER.splitlines()[0])


def test_commits_are_counted_and_their_slowest_told() -> None:
    found = committed("\n".join(["1.5"] * 990 + ["9.0"] * 10), 2.0)
    assert found.a_second == 500
    assert 1.5 < found.p99_ms <= 9.0


def test_a_producer_that_has_committed_nothing_has_told_nothing() -> None:
    with pytest.raises(ValueError, match="nothing"):
        committed("", 2.0)
