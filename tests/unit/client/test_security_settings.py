"""The client's settings become a TLS context and a login, with what they say; what cannot work is refused at once."""

import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest

from semel.client.errors import BadSetting, FatalError
from semel.client.peers import ClientConnector, mechanism_for, tls_context_for
from semel.client.settings import ConnectionSettings, load
from semel.peer.security.oauthbearer import OAuthBearer
from semel.peer.security.sasl import Plain
from semel.peer.security.scram import Scram
from tls_handshake import handshake

CERTIFICATES = Path(__file__).parents[2] / "certificates"
CA, CLIENT = (str(CERTIFICATES / name) for name in ("ca.pem", "client.pem"))
ENCRYPTED = str(CERTIFICATES / "client.encrypted.key")
HOST = SimpleNamespace(jobs=SimpleNamespace(run_in_thread=None))
SASL = {"security_protocol": "SASL_PLAINTEXT"}


def text(path):
    return Path(path).read_text()


def settings(**given):
    return load(ConnectionSettings, given)


# TLS


def test_the_clients_settings_become_a_context():
    kafka_names = {
        "security.protocol": "SSL",
        "ssl.truststore.location": CA,
        "ssl.truststore.type": "PEM",
        "ssl.keystore.certificate.chain": text(CLIENT),
        "ssl.keystore.key": text(ENCRYPTED),
        "ssl.key.password": "secret",
    }
    assert handshake(tls_context_for(load(ConnectionSettings, kafka_names)), wants_certificate=True) == "client"
    for given, checks in (
        ({}, True),
        ({"ssl_check_hostname": False}, False),
        ({"ssl.endpoint.identification.algorithm": ""}, False),
        ({"ssl.endpoint.identification.algorithm": "https"}, True),
    ):
        assert tls_context_for(load(ConnectionSettings, {"ssl_cafile": CA, **given})).check_hostname is checks


def test_a_ready_context_is_taken_as_it_is():
    ready = ssl.create_default_context()
    assert tls_context_for(load(ConnectionSettings, {"ssl_context": ready})) is ready
    with pytest.raises(BadSetting, match=r"allowed is an ssl\.SSLContext"):
        tls_context_for(load(ConnectionSettings, {"ssl_context": object()}))


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_what_cannot_be_read_is_an_error_of_the_client_at_once(protocol):
    with pytest.raises(BadSetting, match=r"ssl_cafile: nowhere\.pem cannot be read") as refused:
        ClientConnector(HOST, settings(security_protocol=protocol, ssl_cafile="nowhere.pem"))
    assert isinstance(refused.value, FatalError)
    assert isinstance(refused.value.__cause__, FileNotFoundError)


# SASL


def test_the_settings_name_the_mechanism():
    login = {"sasl_plain_username": "alice", "sasl_plain_password": "secret", **SASL}
    assert isinstance(mechanism_for(settings(**login), HOST), Plain)
    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        made = mechanism_for(settings(sasl_mechanism=name, **login), HOST)
        assert isinstance(made, Scram)
        assert made.name == name
    provider = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: "token"}
    assert isinstance(mechanism_for(settings(**provider, **SASL), HOST), OAuthBearer)


async def test_a_jaas_line_takes_the_place_of_user_and_password():
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" password="se;cret";'
    assert await mechanism_for(settings(sasl_jaas_config=line, **SASL), HOST).first() == b'\0al"ice\0se;cret'
    line = "ScramLoginModule required username=alice password=secret tokenauth=true;"
    made = mechanism_for(settings(sasl_jaas_config=line, sasl_mechanism="SCRAM-SHA-256", **SASL), HOST)
    assert (await made.first()).startswith(b"n,,n=alice,r=")
    assert (await mechanism_for(settings(sasl_jaas_config=line, sasl_mechanism="SCRAM-SHA-256", **SASL), HOST).first())[
        -15:
    ] == b",tokenauth=true"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "PLAIN needs sasl_plain_username and sasl_plain_password"),
        ({"sasl_plain_username": "alice"}, "PLAIN needs sasl_plain_username and sasl_plain_password"),
        ({"sasl_plain_username": "alice", "sasl_plain_password": ""}, "needs"),
        ({"sasl_plain_username": "a\0b", "sasl_plain_password": "x"}, "NUL"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "SCRAM-SHA-512 needs"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_provider"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": "a token?"}, "a function, or an object"),
        ({"sasl_jaas_config": "x required;", "sasl_plain_username": "alice"}, "one is enough"),
        ({"sasl_jaas_config": "x.ScramLoginModule required username=a password=b;"}, "not for PLAIN"),
    ],
)
def test_settings_that_cannot_log_in_are_refused_with_what_is_missing(given, words):
    with pytest.raises(BadSetting, match=words):
        mechanism_for(settings(**given, **SASL), HOST)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_login_that_cannot_work_is_refused_before_anything_is_connected(protocol):
    with pytest.raises(BadSetting, match="PLAIN needs sasl_plain_username"):
        ClientConnector(HOST, settings(security_protocol=protocol))
