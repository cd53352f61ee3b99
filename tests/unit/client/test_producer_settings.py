"""The producer's settings: Kafka's defaults, and pairs that contradict each other are refused by both their names."""

from __future__ import annotations

from typing import Any

import pytest

from semel.client.errors import BadSetting
from semel.client.producer.producer import Producer
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import load


def loaded(**given: Any) -> ProducerSettings:
    return load(ProducerSettings, given)


def test_the_defaults_are_kafkas() -> None:
    settings = loaded()
    assert settings.acks == -1
    assert settings.enable_idempotence is True
    assert settings.retries == 2**31 - 1
    assert settings.max_in_flight_requests_per_connection == 5
    assert settings.batch_size == 16384
    assert settings.buffer_memory == 32 * 1024 * 1024
    assert settings.max_request_size == 1024 * 1024
    assert settings.max_block_ms == 60_000
    assert settings.delivery_timeout_ms == 120_000
    assert settings.request_timeout_ms == 30_000
    assert settings.retry_backoff_ms == 100
    assert settings.retry_backoff_max_ms == 1000
    assert settings.transaction_timeout_ms == 60_000
    assert settings.compression_type == "none"
    assert settings.transactional_id is None
    assert settings.linger_s == 0.005


def test_times_are_told_in_seconds_too() -> None:
    settings = loaded(linger_ms=2.5, delivery_timeout_ms=45_000, max_block_ms=1500)
    assert (settings.linger_s, settings.delivery_timeout_s, settings.max_block_s) == (0.0025, 45, 1.5)


@pytest.mark.parametrize(("name", "codec"), [("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_codecs_have_their_numbers(name: str, codec: int) -> None:
    assert loaded(compression_type=name).codec == codec


@pytest.mark.parametrize(
    ("given", "names", "advice"),
    [
        ({"acks": 1}, ["acks=1", "enable_idempotence=True"], "set acks='all'"),
        ({"acks": "0"}, ["acks=0", "enable_idempotence=True"], "set acks='all'"),
        ({"retries": 0}, ["retries=0", "enable_idempotence=True"], "set retries above 0"),
        (
            {"max.in.flight.requests.per.connection": 6},
            ["max_in_flight_requests_per_connection=6", "enable_idempotence=True"],
            "at most 5",
        ),
        (
            {"transactional_id": "id", "enable_idempotence": False},
            ["transactional_id='id'", "enable_idempotence=False"],
            "leave enable_idempotence at True",
        ),
        (
            {"delivery_timeout_ms": 29_999},
            ["delivery_timeout_ms=29999", "linger_ms=5", "request_timeout_ms=30000"],
            "at least their sum",
        ),
        (
            {"delivery_timeout_ms": 40_000, "linger_ms": 10_001},
            ["delivery_timeout_ms=40000", "linger_ms=10001", "request_timeout_ms=30000"],
            "at least their sum",
        ),
        (
            {"request_timeout_ms": 200_000},
            ["delivery_timeout_ms=120000", "request_timeout_ms=200000"],
            "at least their sum",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(
    given: dict[str, Any], names: list[str], advice: str
) -> None:
    with pytest.raises(BadSetting, match="contradicts") as caught:
        loaded(**given)
    for part in (*names, advice):
        assert part in str(caught.value)
    with pytest.raises(BadSetting):
        Producer(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"acks": "all", "retries": 1, "max_in_flight_requests_per_connection": 5},
        {"max_in_flight_requests_per_connection": 1},
        {"enable_idempotence": False, "acks": 0},
        {"enable_idempotence": False, "acks": 1, "retries": 0, "max_in_flight_requests_per_connection": 100},
        {"transactional_id": "id"},
        {"transactional_id": "id", "enable_idempotence": True, "acks": -1},
        {"delivery_timeout_ms": 30_005},
        {"delivery_timeout_ms": 40_000, "linger_ms": 10_000},
        {"linger_ms": 0, "delivery_timeout_ms": 30_000},
    ],
)
def test_settings_that_fit_together_are_taken(given: dict[str, Any]) -> None:
    loaded(**given)


def test_an_empty_transactional_id_is_refused() -> None:
    with pytest.raises(BadSetting, match="transactional_id"):
        loaded(transactional_id="")


@pytest.mark.parametrize("keyword", ["key_serializer", "value_serializer", "partitioner"])
def test_what_is_to_be_called_must_be_callable(keyword: str) -> None:
    with pytest.raises(BadSetting, match=f"{keyword}: .*function"):
        loaded(**{keyword: "not a function"})
