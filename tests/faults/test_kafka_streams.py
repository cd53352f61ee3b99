"""Kafka Streams with exactly_once_v2 on three brokers that are killed and paused. SEMEL_STREAMS_SECONDS: how long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from streams_check import run_streams, wrong_with

from apache_kafka import skip_reason
from semel.client.values import Message
from semel.sim.attack.assault import FaultKind

SECONDS = float(os.environ.get("SEMEL_STREAMS_SECONDS", "45"))


def _total(number: int, count: int, total: int, *, key: bytes = b"0", offset: int = 0) -> Message:
    return Message("totals", 0, offset, 0, 0, key, b"%d %d %d" % (count, total, number))


def test_what_is_lost_doubled_or_counted_twice_is_found() -> None:
    good = [_total(0, 1, 0), _total(1, 1, 1, key=b"1"), _total(2, 2, 2)]
    assert wrong_with(good, 3) == []
    assert wrong_with(good, 4) == ["1 of 4 are not in the output, the first: 3"]
    assert "are in the output twice" in wrong_with([*good, _total(2, 3, 4)], 3)[0]
    (counted_twice,) = wrong_with([_total(0, 1, 0), _total(1, 1, 1, key=b"1"), _total(2, 3, 4)], 3)
    assert "count 3, sum 4 with 2, after count 1, sum 0" in counted_twice


@pytest.mark.kafka
@pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
@pytest.mark.timeout(SECONDS + 900)
def test_kafka_streams_counts_each_record_once_while_brokers_are_killed(tmp_path: Path) -> None:
    run = run_streams(tmp_path, SECONDS, 1, [FaultKind.KILL, FaultKind.PAUSE])
    print(run)
    assert not run.wrong
    assert run.results == run.written > 0
    assert run.faults["kill"] > 0
    assert run.instances_killed > 0
