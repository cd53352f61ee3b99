"""Options `kafka.*`: what becomes a setting of the client, what is let through, and what is refused."""

from __future__ import annotations

import pytest

from semel.client.admin.settings import AdminSettings
from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import BadSetting
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import load
from semel.spark.connection_options import DEFAULT_CLIENT_ID, WITHOUT_EFFECT, client_settings

HERE = {"kafka.bootstrap.servers": "one:9092,two:9092"}
JAAS = 'org.apache.kafka.common.security.{module} required username="alice" password="secret";'


def a_token() -> str:
    return "token"


def test_the_names_of_kafka_become_keywords() -> None:
    settings = client_settings({**HERE, "kafka.security.protocol": "SASL_SSL", "kafka.client.id": "etl"})

    assert settings == {
        "bootstrap_servers": "one:9092,two:9092",
        "security_protocol": "SASL_SSL",
        "client_id": "etl",
    }
    assert load(AdminSettings, settings).bootstrap_servers == ("one:9092", "two:9092")


def test_a_client_has_a_name_of_its_own_unless_one_is_given() -> None:
    assert client_settings(HERE)["client_id"] == DEFAULT_CLIENT_ID


def test_each_side_takes_its_settings_and_lets_those_of_the_other_through() -> None:
    options = {**HERE, "kafka.fetch.min.bytes": "7", "kafka.compression.type": "zstd"}

    assert "fetch_min_bytes" not in client_settings(options)
    assert client_settings(options, ConsumerSettings)["fetch_min_bytes"] == "7"
    assert client_settings(options, ProducerSettings)["compression_type"] == "zstd"
    assert "compression_type" not in client_settings(options, ConsumerSettings)


def test_names_are_read_whatever_their_letters_and_options_of_spark_are_none_of_ours() -> None:
    settings = client_settings({"Kafka.Bootstrap.Servers": "one:9092", "subscribe": "t"})

    assert settings == {"bootstrap_servers": "one:9092", "client_id": DEFAULT_CLIENT_ID}


def test_no_address_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"kafka\.bootstrap\.servers is missing"):
        client_settings({"kafka.client.id": "x"})


@pytest.mark.parametrize(
    ("name", "nearest"), [("fetch.min.byte", "fetch.min.bytes"), ("comression.type", "compression.type")]
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(
        BadSetting, match=rf"^kafka\.{name}: unknown option; the nearest known option is kafka\.{nearest}$"
    ):
        client_settings({**HERE, f"kafka.{name}": "1"})


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_what_only_javas_client_can_tune_is_let_through(name: str) -> None:
    assert client_settings({**HERE, f"kafka.{name}": "1"}, ConsumerSettings) == client_settings(HERE, ConsumerSettings)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ssl.truststore.type", "JKS", "stores of Java"),
        ("ssl.keystore.type", "PKCS12", "stores of Java"),
        ("ssl.truststore.password", "secret", "stores of Java"),
        ("sasl.mechanism", "GSSAPI", "Kerberos"),
        ("sasl.kerberos.service.name", "kafka", "Kerberos"),
        ("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required;", "Kerberos"),
        ("key.deserializer", "x", "bytes on both sides"),
        ("value.serializer", "x", "bytes on both sides"),
        ("enable.auto.commit", "true", "checkpoint"),
        ("auto.offset.reset", "latest", "startingOffsets"),
        ("interceptor.classes", "x", "Java class"),
        ("group.instance.id", "x", "join no group"),
        ("transactional.id", "x", "transactionalIdPrefix"),
        ("sasl.oauthbearer.token.endpoint.url", "x", "Python function"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(name: str, value: str, words: str) -> None:
    with pytest.raises(BadSetting, match=words) as caught:
        client_settings({**HERE, f"kafka.{name}": value})
    assert str(caught.value).startswith(f"kafka.{name}: ")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "mechanism"), [("plain.PlainLoginModule", "PLAIN"), ("scram.ScramLoginModule", "SCRAM-SHA-512")]
)
def test_a_jaas_line_is_passed_on_to_the_client(module: str, mechanism: str) -> None:
    options = {**HERE, "kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": JAAS.format(module=module)}

    read = load(ConsumerSettings, client_settings(options, ConsumerSettings))

    assert read.sasl_mechanism == mechanism
    assert read.sasl_jaas_config == JAAS.format(module=module)


def test_pem_stores_are_allowed() -> None:
    settings = client_settings(
        {**HERE, "kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/etc/trusted.pem"}
    )

    assert settings["ssl_truststore_location"] == "/etc/trusted.pem"


def test_a_token_provider_is_a_function_that_tasks_can_import() -> None:
    option = "kafka.sasl.oauth.token.provider"

    assert client_settings({**HERE, option: f"{__name__}:a_token"})["sasl_oauth_token_provider"] is a_token
    with pytest.raises(BadSetting, match=r"'nowhere:f' cannot be imported"):
        client_settings({**HERE, option: "nowhere:f"})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kafka.request.timeout.ms": "soon"}, 'kafka.request.timeout.ms: "soon" is not allowed'),
        ({"kafka.sasl.username": ""}, None),
        (
            {"kafka.ssl.endpoint.identification.algorithm": "ftp"},
            "kafka.ssl.endpoint.identification.algorithm: allowed",
        ),
        ({"Kafka.Request.Timeout.Ms": "0"}, "Kafka.Request.Timeout.Ms: "),
    ],
)
def test_what_is_wrong_is_told_by_the_name_of_the_option_as_it_was_written(
    options: dict[str, str], told: str | None
) -> None:
    if told is None:
        client_settings({**HERE, **options})
        return
    with pytest.raises(BadSetting) as caught:
        client_settings({**HERE, **options})

    assert str(caught.value).startswith(told)
