"""Clients of librdkafka and Java beside ours while brokers are killed, paused and cut off: a short `make faults`."""

from __future__ import annotations

import pytest
from foreign_check import LIBRARIES, one_round

from apache_kafka import skip_reason

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason())),
    pytest.mark.timeout(900),
]


def test_nothing_is_lost_or_doubled_for_clients_of_any_kind() -> None:
    found = one_round(30)
    assert not found.wrong, found.directory
    assert not found.complaints
    assert found.faults.total() >= 2
    assert found.offsets > 100
    for library in LIBRARIES:
        assert found.counts[f"written by {library}"] > 50
        assert found.counts[f"committed by {library}"] > 0
