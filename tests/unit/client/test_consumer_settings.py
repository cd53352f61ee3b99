"""The consumer's settings: Kafka's names and defaults, and a sentence for what contradicts."""

from __future__ import annotations

from typing import Any

import pytest

from semel.client.consumer.reset_policy import EARLIEST, LATEST, ResetPolicy
from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import BadSetting
from semel.client.settings import load


def settings(**given: Any) -> ConsumerSettings:
    return load(ConsumerSettings, given)


def test_the_defaults_are_those_of_kafka_4() -> None:
    made = settings()
    assert made.auto_offset_reset == "latest"
    assert (made.fetch_min_bytes, made.fetch_max_bytes, made.fetch_max_wait_ms) == (1, 50 << 20, 500)
    assert (made.max_partition_fetch_bytes, made.max_poll_records) == (1 << 20, 500)
    assert (made.session_timeout_ms, made.heartbeat_interval_ms, made.max_poll_interval_ms) == (45_000, 3000, 300_000)
    assert (made.auto_commit_interval_ms, made.default_api_timeout_ms) == (5000, 60_000)
    assert made.isolation_level == "read_uncommitted"
    assert made.group_protocol == "classic"
    assert made.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert made.check_crcs
    assert made.exclude_internal_topics
    assert made.allow_auto_create_topics


def test_auto_commit_is_on_if_there_is_a_group() -> None:
    assert not settings().auto_commits
    assert settings(group_id="g").auto_commits
    assert not settings(group_id="g", enable_auto_commit=False).auto_commits


def test_kafkas_own_spelling_is_read() -> None:
    made = load(
        ConsumerSettings,
        {
            "group.id": "g",
            "isolation.level": "READ_COMMITTED",
            "partition.assignment.strategy": "roundrobin, sticky",
            "enable.auto.commit": "false",
        },
    )
    assert made.reads_committed
    assert made.partition_assignment_strategy == ("roundrobin", "sticky")
    assert not made.auto_commits


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"enable_auto_commit": True}, ["enable_auto_commit", "group_id"]),
        ({"group_instance_id": "one"}, ["group_instance_id", "group_id"]),
        ({"group_id": ""}, ["group_id"]),
        ({"heartbeat_interval_ms": 5000, "session_timeout_ms": 5000}, ["heartbeat_interval_ms", "session_timeout_ms"]),
        ({"fetch_max_bytes": 128 << 20}, ["fetch_max_bytes", "max_frame_bytes"]),
        ({"group_remote_assignor": "uniform"}, ["group_remote_assignor", "group_protocol"]),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
            ["partition_assignment_strategy", "group_protocol"],
        ),
        ({"partition_assignment_strategy": []}, ["partition_assignment_strategy"]),
        ({"key_deserializer": "str"}, ["key_deserializer"]),
        ({"isolation_level": "serializable"}, ["isolation_level", "read_committed"]),
        ({"auto_offset_reset": "newest"}, ["auto_offset_reset", "earliest, latest, none"]),
        ({"max_poll_records": 0}, ["max_poll_records"]),
        ({"fetch_max_byte": 1}, ["fetch_max_byte", "fetch_max_bytes"]),
    ],
)
def test_what_is_wrong_is_refused_by_name(given: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(BadSetting) as caught:
        settings(**given)
    for name in named:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", ResetPolicy(EARLIEST)),
        ("LATEST", ResetPolicy(LATEST)),
        ("none", ResetPolicy()),
        ("by_duration:PT1S", ResetPolicy(duration_ms=1000)),
        ("by_duration:P1DT2H3M4.5S", ResetPolicy(duration_ms=93_784_500)),
        ("by_duration:PT0.001S", ResetPolicy(duration_ms=1)),
        ("by_duration:P30D", ResetPolicy(duration_ms=30 * 86_400_000)),
    ],
)
def test_a_reset_policy_is_read(text: str, expected: ResetPolicy) -> None:
    assert ResetPolicy.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1DT", "by_duration:-PT1S"],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="by_duration:PnDTnHnMnS"):
        ResetPolicy.parse(text)


def test_a_duration_longer_than_time_itself_begins_at_its_beginning() -> None:
    assert ResetPolicy.parse("by_duration:P90000D").timestamp_ms(1_700_000_000_000) == 0
