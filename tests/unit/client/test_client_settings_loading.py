"""How keyword arguments become settings: every spelling, texts, bounds, and what is said about mistakes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from semel.client.errors import BadSetting, FatalError
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import ConnectionSettings, declared, load

TABLE = declared(ProducerSettings)
SAMPLES: dict[str, tuple[Any, str]] = {
    "bool": (False, "FALSE"),
    "int": (1, "1"),
    "float": (2.5, "2.5"),
    "str": ("words", "words"),
}
"""For each type a value, and a text for it."""


def sample(keyword: str) -> tuple[Any, str]:
    entry = TABLE[keyword]
    if entry.setting.choices:
        last = entry.setting.choices[-1]
        return last, last
    if keyword == "bootstrap_servers":
        return ("a:1", "b:2"), "a:1, b:2"
    kind = {"BOOLEAN": "bool", "DOUBLE": "float", "STRING": "str"}.get(entry.setting.kind.name, "int")
    if kind == "int":
        least = entry.setting.minimum if entry.setting.minimum is not None else 5
        return int(least), f" {int(least)} "
    return SAMPLES[kind]


WITH_TEXT = [keyword for keyword, entry in TABLE.items() if entry.has_text]


def parsed(name: str, value: Any) -> Any:
    """One setting's value, without the checks of one against another."""
    return getattr(load(Unchecked, {name: value}), TABLE_KEYWORD.get(name, name))


class Unchecked(ProducerSettings):
    def check(self) -> None:
        pass


TABLE_KEYWORD = {keyword.replace("_", "."): keyword for keyword in TABLE}


@pytest.mark.parametrize("keyword", WITH_TEXT)
def test_every_setting_takes_a_value_and_its_text_under_both_names(keyword: str) -> None:
    value, text = sample(keyword)
    for name in (keyword, keyword.replace("_", ".")):
        assert parsed(name, value) == value
        assert parsed(name, text) == value


@pytest.mark.parametrize("keyword", TABLE)
def test_every_default_is_allowed_and_every_setting_is_described(keyword: str) -> None:
    entry = TABLE[keyword]
    default = getattr(ProducerSettings(), keyword)
    if entry.has_text and default is not None:
        assert parsed(keyword, default) == default
    assert entry.setting.sentence.endswith(".")
    assert entry.setting.sentence[0].isupper() or entry.setting.sentence.startswith("PEM")


@pytest.mark.parametrize(
    ("alias", "keyword", "value"),
    [
        ("max_batch_size", "batch_size", 77),
        ("compression", "compression_type", "lz4"),
        ("sasl_username", "sasl_plain_username", "me"),
        ("sasl.password", "sasl_plain_password", "secret"),
        ("ssl.key.password", "ssl_password", "secret"),
    ],
)
def test_other_names_are_taken_too(alias: str, keyword: str, value: Any) -> None:
    assert getattr(load(ProducerSettings, {alias: value}), keyword) == value


@pytest.mark.parametrize("given", ["a:1,b:2", ["a:1", "b:2"], ("a:1", "b:2"), " a:1 , b:2 "])
def test_servers_may_be_a_text_or_a_list(given: Any) -> None:
    assert load(ConnectionSettings, {"bootstrap_servers": given}).bootstrap_servers == ("a:1", "b:2")


def test_a_set_of_servers_is_taken() -> None:
    assert set(load(ConnectionSettings, {"bootstrap_servers": {"a:1", "b:2"}}).bootstrap_servers) == {"a:1", "b:2"}


@pytest.mark.parametrize(
    ("keyword", "given", "expected"),
    [
        ("security_protocol", "sasl_ssl", "SASL_SSL"),
        ("sasl_mechanism", "scram-sha-256", "SCRAM-SHA-256"),
        ("compression_type", "GZIP", "gzip"),
        ("compression_type", None, "none"),
        ("acks", "ALL", -1),
        ("acks", " all ", -1),
        ("acks", "1", 1),
        ("acks", 0, 0),
        ("enable_idempotence", "True", True),
        ("linger_ms", 0, 0),
        ("linger_ms", None, None),
        ("compression_level", None, None),
    ],
)
def test_values_may_be_spelled_in_more_than_one_way(keyword: str, given: Any, expected: Any) -> None:
    assert parsed(keyword, given) == expected


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("bootstrap_server", "bootstrap_servers"),
        ("linger", "linger_ms"),
        ("bootstrap.server", "bootstrap.servers"),
        ("enable.idempotance", "enable.idempotence"),
        ("transaction_id", "transactional_id"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(given: str, nearest: str) -> None:
    with pytest.raises(BadSetting) as caught:
        load(ProducerSettings, {given: 1})
    assert str(caught.value) == f"{given}: unknown setting; the nearest known setting is {nearest}"


def test_a_name_like_nothing_is_refused_too() -> None:
    with pytest.raises(BadSetting, match="zzzzqqqq: unknown setting; no known one is spelled like it"):
        load(ProducerSettings, {"zzzzqqqq": 1})


@pytest.mark.parametrize(
    "given",
    [{"linger_ms": 1, "linger.ms": 2}, {"batch_size": 1, "max_batch_size": 1}, {"linger.ms": 1, "linger_ms": 1}],
)
def test_a_setting_given_by_two_names_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="is given twice, by two of its names"):
        load(ProducerSettings, given)


@pytest.mark.parametrize(
    ("keyword", "given"),
    [
        ("batch_size", 0),
        ("batch_size", -1),
        ("batch_size", "many"),
        ("batch_size", 1.5),
        ("batch_size", True),
        ("batch_size", None),
        ("batch_size", [1]),
        ("batch_size", 2**70),
        ("acks", 2),
        ("acks", -2),
        ("acks", "some"),
        ("acks", None),
        ("linger_ms", -1),
        ("linger_ms", "nan"),
        ("linger_ms", float("inf")),
        ("enable_idempotence", "yes"),
        ("enable_idempotence", 1),
        ("enable_idempotence", None),
        ("compression_type", "brotli"),
        ("compression_type", 5),
        ("security_protocol", "TLS"),
        ("max_block_ms", -1),
        ("transaction_timeout_ms", 0),
        ("bootstrap_servers", object()),
        ("bootstrap_servers", ["a:1", "a:1"]),
        ("bootstrap_servers", "a:1,,b:2"),
        ("client_id", b"bytes"),
        ("max_frame_bytes", 10),
        ("retries", -1),
        ("max_in_flight_requests_per_connection", 0),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_what_is(keyword: str, given: Any) -> None:
    with pytest.raises(BadSetting, match=f"^{keyword}: .* is not allowed; allowed: \\S"):
        parsed(keyword, given)


def test_secrets_are_not_shown() -> None:
    for keyword in ("sasl_plain_password", "ssl_password", "sasl_jaas_config", "ssl_keystore_key"):
        assert TABLE[keyword].setting.sensitive
        with pytest.raises(BadSetting) as caught:
            load(ProducerSettings, {keyword: ["secret"]})
        assert "secret" not in str(caught.value)


def test_objects_are_taken_as_they_are() -> None:
    def choose(*_: Any) -> int:
        return 0

    settings = load(ProducerSettings, {"partitioner": choose, "value_serializer": len, "key_serializer": None})
    assert settings.partitioner is choose
    assert settings.value_serializer is len
    assert settings.key_serializer is None


def test_settings_do_not_change() -> None:
    settings = load(ConnectionSettings, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.client_id = "other"  # type: ignore[misc]


def test_a_bad_setting_is_fatal_and_a_value_error() -> None:
    assert issubclass(BadSetting, FatalError)
    assert issubclass(BadSetting, ValueError)


def test_host_names_are_checked_as_asked_in_kafkas_way_too() -> None:
    for allowed in ("", "https", None):
        load(ConnectionSettings, {"ssl.endpoint.identification.algorithm": allowed})
    with pytest.raises(BadSetting, match="ssl_endpoint_identification_algorithm: allowed are https and an empty text"):
        load(ConnectionSettings, {"ssl.endpoint.identification.algorithm": "http"})
