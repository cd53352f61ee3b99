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
time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-01-01 18:47:49:605, 0, 100.0, 100.0, 104857, 104857.0, 450, 550, 181.8, 190650.0
2026-01-01 18:47:50:605, 0, 500.0, 400.0, 524288, 419431.0, 0, 1000, 400.0, 419431.0
2026-01-01 18:47:51:605, 0, 900.0, 800.0, 943718, 838860.0, 0, 500, 800.0, 838860.0
2026-01-01 18:47:52:105, 0, 1000.0, 400.0, 1048576, 419431.0, 0, 250, 400.0, 419431.0
"""


def test_the_first_half_of_what_the_producer_sends_is_its_start_and_does_not_count() -> None:
    assert sent(PRODUCER) == (pytest.approx(750_000 * 1000 / 1e6 / (14 - 5)), 12, 409)
    longer = PRODUCER.replace("1000000 records sent, 71428.6", "2000000 records sent, 71428.6")
    assert sent(longer) == (pytest.approx(1_350_000 * 1000 / 1e6 / (28 - 10)), 12, 409)


def test_a_producer_that_prints_one_line_is_judged_by_that() -> None:
    assert sent(PRODUCER.splitlines()[2]) == (pytest.approx(71.4286), 12, 409)


def test_a_producer_that_tells_only_of_intervals_has_told_nothing() -> None:
    with pytest.raises(ValueError, match="told nothing"):
        sent(PRODUCER.splitlines()[0])


def test_the_first_half_of_what_the_consumer_reads_is_its_start_and_does_not_count() -> None:
    assert read(CONSUMER).megabytes == pytest.approx(500 * 1.048576 / 0.75)


def test_of_a_consumer_that_had_half_in_the_end_only_the_end_counts() -> None:
    assert read("\n".join(CONSUMER.splitlines()[:3])).megabytes == pytest.approx(400 * 1.048576)


@pytest.mark.parametrize("lines", [1, 2])
def test_a_consumer_that_prints_too_little_has_told_nothing(lines: int) -> None:
    with pytest.raises(ValueError, match="told nothing"):
        read("\n".join(CONSUMER.splitlines()[:lines]))


def test_a_consumer_that_gave_up_is_not_believed() -> None:
    with pytest.raises(ValueError, match="not read everything"):
        read(CONSUMER + "WARNING: Exiting before consuming the expected number of messages: timeout exceeded.")


def test_commits_are_counted_and_their_slowest_told() -> None:
    found = committed("\n".join(["1.5"] * 990 + ["9.0"] * 10), 2.0)
    assert found.a_second == 500
    assert 1.5 < found.p99_ms <= 9.0


def test_a_producer_that_has_committed_nothing_has_told_nothing() -> None:
    with pytest.raises(ValueError, match="nothing"):
        committed("", 2.0)
