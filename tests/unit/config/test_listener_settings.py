"""Settings of one listener, and secrets, which nobody is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.config import BrokerConfig, ConfigError, UnknownSetting, load_config
from semel.config.describe import describe_broker

SECRET = "hunter2"
JAAS = f'PlainLoginModule required username="a" password="{SECRET}";'
OWN = "listener.name.clients.plain.sasl.jaas.config"


def test_a_listener_has_its_own_value_or_that_of_all() -> None:
    config = BrokerConfig({"ssl.client.auth": "requested", "listener.name.clients.ssl.client.auth": "required"})
    assert config.of_listener("CLIENTS", "ssl.client.auth") == "required"
    assert config.of_listener("OTHERS", "ssl.client.auth") == "requested"
    assert BrokerConfig().of_listener("CLIENTS", "ssl.client.auth") == "none"


@pytest.mark.parametrize(
    "name", ["listener.name.clients.log.dir", "listener.name.ssl.client.auth", "listener.name.A.ssl.client.auth"]
)
def test_what_no_listener_can_have_is_unknown(name: str) -> None:
    with pytest.raises(UnknownSetting):
        BrokerConfig({name: "required"})


def test_a_wrong_value_of_a_listener_is_refused() -> None:
    with pytest.raises(ConfigError, match="none, requested, required"):
        BrokerConfig({"listener.name.clients.ssl.client.auth": "perhaps"})


def test_a_variable_can_be_for_one_listener_and_one_mechanism() -> None:
    environ = {
        "SEMEL_LISTENER_NAME_CLIENTS_SSL_CLIENT_AUTH": "required",
        "SEMEL_LISTENER_NAME_CLIENTS_SCRAM_SHA_512_SASL_JAAS_CONFIG": JAAS,
        "SEMEL_SSL_KEYSTORE_KEY": SECRET,
    }
    config = load_config(None, environ, {})
    assert config.of_listener("CLIENTS", "ssl.client.auth") == "required"
    assert config["listener.name.clients.scram-sha-512.sasl.jaas.config"] == JAAS
    assert config.of_listener("CLIENTS", "ssl.keystore.key") == SECRET


def test_secrets_are_shown_to_nobody(tmp_path: Path) -> None:
    given = {OWN: JAAS, "ssl.key.password": SECRET, "ssl.keystore.key": SECRET}
    config = BrokerConfig(given)
    assert SECRET not in repr(config)
    assert OWN in repr(config)
    for one in describe_broker(config):
        assert SECRET not in f"{one.value}{one.synonyms}"
    path = tmp_path / "node.toml"
    path.write_text(f'"ssl.key.password" = ["{SECRET}", 3]\n')
    with pytest.raises(ConfigError) as refused:
        load_config(path, {}, {})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("text", ["CN=a", "User:", "admin", "User:a;b"])
def test_super_users_have_a_type_and_a_name(text: str) -> None:
    with pytest.raises(ConfigError, match="Type:name"):
        BrokerConfig({"super.users": text})
