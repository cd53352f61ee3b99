"""Our client on Apache Kafka over TLS and every SASL mechanism: who may come in does, who may not is told at once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import apache_kafka
import semel
from apache_kafka import CERTIFICATES, ApacheKafka
from raw_client import RawClient
from semel.client.admin.values import NewTopic
from semel.client.errors import AuthenticationFailed, Disconnected
from semel.client.producer.batch import Delivery
from semel.host.api import Arguments, Result
from semel.peer import errors as peer
from semel.peer.security import sasl
from semel.peer.security.oauthbearer import OAuthBearer
from semel.peer.security.sasl import Call, Mechanism, Plain, authenticate, new_nonce
from semel.peer.security.scram import Scram
from semel.peer.security.tls import tls_context
from semel.wire.apis import API
from semel.wire.schema import Request, Response
from semel.wire.spec.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(apache_kafka.skip_reason() is not None, reason=str(apache_kafka.skip_reason())),
    pytest.mark.timeout(300),
]

R = TypeVar("R", bound=Response)

SESSION_MS = 3000
# SASLprep would make "VIII fi" of this password: Kafka does not apply it, and neither do we. (For SCRAM, Kafka takes
# names in ASCII only.)
USERS = {"alice": "alice-secret", "juergen": "\u2167 \ufb01"}
TRUST = {"ssl_cafile": str(CERTIFICATES / "ca.pem")}
OWN = {"ssl_certfile": str(CERTIFICATES / "client.pem"), "ssl_keyfile": str(CERTIFICATES / "client.key")}
LOGIN = {"sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
MECHANISMS = pytest.mark.parametrize("mechanism", apache_kafka.MECHANISMS)
PATIENCE_S = 8.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    settings = {"listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS)}
    node = ApacheKafka(tmp_path_factory.mktemp("kafka"), secure=True, users=USERS, settings=settings)
    try:
        yield node.start()
    finally:
        node.reap()


def token(subject: str = "alice", lives_s: int = 3600) -> str:
    """A JWT that nobody has signed."""

    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    now_s = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'iat': now_s - 7200, 'exp': now_s + lives_s})}."


def settings_for(kafka: ApacheKafka, listener: str, mechanism: str = "", **more: Any) -> dict[str, Any]:
    protocol = "SSL" if listener == "MUTUAL" else listener
    settings: dict[str, Any] = {"bootstrap_servers": kafka.address_of(listener), "security_protocol": protocol}
    if "SSL" in protocol:
        settings.update(TRUST)
    if mechanism:
        settings["sasl_mechanism"] = mechanism
        settings.update({"sasl_oauth_token_provider": token} if mechanism == "OAUTHBEARER" else LOGIN)
    return {**settings, **more}


async def write_and_read(kafka: ApacheKafka, settings: dict[str, Any]) -> None:
    """A topic is made, written to and read, all by clients that have to log in."""
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    async with semel.Admin(**settings) as admin:
        await admin.create_topics(NewTopic(topic, partitions=1, replication_factor=1))
    values = [b"%d" % number for number in range(50)] + [b"x" * 500_000]
    async with semel.Producer(**settings) as producer:
        for value in values:
            await producer.send(topic, value)
        await producer.flush()
    async with semel.Consumer(auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([semel.TopicPartition(topic, 0)])
        read: list[bytes | None] = []
        async with asyncio.timeout(30):
            while len(read) < len(values):
                for messages in (await consumer.poll(1000)).values():
                    read += [message.value for message in messages]
    assert read == values


async def refused(settings: dict[str, Any]) -> str:
    """The text of the refusal, which comes at once and not after the client has tried for as long as it may."""
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed) as failure:
        async with semel.Admin(**settings):
            pass
    assert time.monotonic() - began < PATIENCE_S
    return str(failure.value)


# Who may come in


@MECHANISMS
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_every_mechanism_lets_our_clients_in(kafka: ApacheKafka, listener: str, mechanism: str) -> None:
    await write_and_read(kafka, settings_for(kafka, listener, mechanism))


async def test_tls_alone_lets_our_clients_in(kafka: ApacheKafka) -> None:
    await write_and_read(kafka, settings_for(kafka, "SSL"))


async def test_a_client_certificate_lets_our_clients_in(kafka: ApacheKafka) -> None:
    await write_and_read(kafka, settings_for(kafka, "MUTUAL", **OWN))
    texts = {
        "ssl.truststore.certificates": (CERTIFICATES / "ca.pem").read_text(),
        "ssl.keystore.certificate.chain": (CERTIFICATES / "client.pem").read_text(),
        "ssl.keystore.key": (CERTIFICATES / "client.encrypted.key").read_text(),
        "ssl.key.password": "secret",
    }
    settings = {**settings_for(kafka, "MUTUAL"), **texts}
    del settings["ssl_cafile"]
    async with semel.Admin(**settings) as admin:
        assert (await admin.describe_cluster()).nodes


async def test_a_jaas_line_of_a_java_program_lets_our_client_in(kafka: ApacheKafka) -> None:
    for module, mechanism in (("plain.Plain", "PLAIN"), ("scram.Scram", "SCRAM-SHA-512")):
        line = (
            f'org.apache.kafka.common.security.{module}LoginModule required username="alice" password="alice-secret";'
        )
        settings = settings_for(kafka, "SASL_SSL") | {"sasl_mechanism": mechanism, "sasl_jaas_config": line}
        async with semel.Admin(**settings) as admin:
            assert (await admin.describe_cluster()).nodes


# Who may not


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", [{"sasl_plain_password": "guess"}, {"sasl_plain_username": "mallory"}])
async def test_a_wrong_login_is_refused_at_once_and_not_tried_for_ever(
    kafka: ApacheKafka, mechanism: str, wrong: dict[str, str]
) -> None:
    attempts = kafka.log().count("Failed authentication")
    text = await refused(settings_for(kafka, "SASL_SSL", mechanism, **wrong))
    assert mechanism in text
    assert "guess" not in text
    assert kafka.log().count("Failed authentication") - attempts <= 2


async def test_an_expired_token_is_refused_with_the_brokers_reason(kafka: ApacheKafka) -> None:
    settings = settings_for(kafka, "SASL_PLAINTEXT", "OAUTHBEARER")
    settings["sasl_oauth_token_provider"] = lambda: token(lives_s=-3600)
    assert "invalid_token" in await refused(settings)


async def test_a_broker_of_another_authority_is_refused(kafka: ApacheKafka) -> None:
    text = await refused(settings_for(kafka, "SSL", ssl_cafile=str(CERTIFICATES / "stranger.pem")))
    assert "certificate" in text


async def test_a_client_without_the_certificate_that_is_wanted_is_refused(kafka: ApacheKafka) -> None:
    await refused(settings_for(kafka, "MUTUAL"))


async def test_the_wrong_protocol_for_a_port_is_recognised(kafka: ApacheKafka) -> None:
    quick = {"bootstrap_timeout_ms": 1500}
    address = {"bootstrap_servers": kafka.address_of("PLAINTEXT")}
    with pytest.raises(Disconnected, match="does not speak TLS"):
        async with semel.Admin(**{**settings_for(kafka, "SSL"), **quick, **address}):
            pass
    text = await refused({**settings_for(kafka, "SASL_PLAINTEXT", "PLAIN"), **address})
    assert "security_protocol should be PLAINTEXT" in text


# The conversation itself, without the rest of the client


def log_in(port: int, make: Callable[[], Mechanism], authenticate_version: int = 2) -> int:
    with RawClient(port) as client:

        async def call(request: Request, response: type[R]) -> R:
            version = min(API[request.api_key].max_version, authenticate_version)
            return client.call(request, version, response)

        return asyncio.run(authenticate(call, make()))


async def inline(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    return function(*arguments)


def scram(name: str, user: str, password: str) -> Scram:
    return Scram(name, user, password, nonce=new_nonce(), in_thread=inline)


@pytest.mark.parametrize("version", [1, 2])
def test_every_mechanism_comes_to_its_end(kafka: ApacheKafka, version: int) -> None:
    port = kafka.ports["SASL_PLAINTEXT"]
    assert log_in(port, lambda: Plain("alice", "alice-secret"), version) == 0
    assert log_in(port, lambda: scram("SCRAM-SHA-512", "alice", "alice-secret"), version) == 0
    assert log_in(port, lambda: OAuthBearer(token, in_thread=inline), version) > 3_000_000
    lifetime_ms = log_in(port, lambda: scram("SCRAM-SHA-256", "alice", "alice-secret"), version)
    assert 0 < lifetime_ms <= SESSION_MS


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_outside_of_ascii_counts_as_it_is(kafka: ApacheKafka, name: str) -> None:
    log_in(kafka.ports["SASL_PLAINTEXT"], lambda: scram(name, "juergen", USERS["juergen"]))
    with pytest.raises(peer.AuthenticationFailed):
        log_in(kafka.ports["SASL_PLAINTEXT"], lambda: scram(name, "juergen", "VIII fi"))


def test_a_plain_password_outside_of_ascii_counts_as_it_is(kafka: ApacheKafka) -> None:
    log_in(kafka.ports["SASL_PLAINTEXT"], lambda: Plain("juergen", USERS["juergen"]))
    with pytest.raises(peer.AuthenticationFailed):
        log_in(kafka.ports["SASL_PLAINTEXT"], lambda: Plain("juergen", "VIII fi"))


def test_a_name_with_comma_and_equals_sign_arrives(kafka: ApacheKafka) -> None:
    name, password, salt, iterations = "a=b,c=2C", "x,y=z", b"some salt", 8192
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    credential = ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=iterations, salt=salt, salted_password=salted
    )
    with RawClient(kafka.port) as client:
        request = AlterUserScramCredentialsRequest(upsertions=[credential])
        answer = client.call(request, 0, AlterUserScramCredentialsResponse)
        assert [result.error_code for result in answer.results] == [0]
    log_in(kafka.ports["SASL_PLAINTEXT"], lambda: scram("SCRAM-SHA-256", name, password))


def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are(kafka: ApacheKafka) -> None:
    class Kerberos(Plain):
        name = "GSSAPI"

    with pytest.raises(peer.AuthenticationFailed, match="does not offer GSSAPI") as failure:
        log_in(kafka.ports["SASL_PLAINTEXT"], lambda: Kerberos("alice", "alice-secret"))
    for mechanism in apache_kafka.MECHANISMS:
        assert mechanism in str(failure.value)


def test_extensions_reach_the_broker(kafka: ApacheKafka) -> None:
    class Provider:
        def token(self) -> str:
            return token()

        def extensions(self) -> dict[str, str]:
            return {"traceId": "42"}

    log_in(kafka.ports["SASL_PLAINTEXT"], lambda: OAuthBearer(Provider(), in_thread=inline))


# Sessions that end


async def test_a_client_logs_in_again_before_its_session_ends_and_loses_nothing(
    kafka: ApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka ends a connection that sends anything else between SaslHandshake and the end of the login."""
    logins = []

    async def watched(call: Call, mechanism: Mechanism) -> int:
        lifetime_ms = await authenticate(call, mechanism)
        logins.append(lifetime_ms)
        return lifetime_ms

    monkeypatch.setattr(sasl, "authenticate", watched)
    settings = settings_for(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-256")
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    deliveries: list[Delivery] = []
    async with semel.Producer(linger_ms=0, **settings) as producer:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 3 * SESSION_MS / 1000
        while loop.time() < end_s:
            deliveries.append(await producer.send(topic, b"%d" % len(deliveries)))
            await asyncio.sleep(0.001)
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(len(deliveries)))
    assert len(logins) >= 4  # one to find the cluster, and one for every session
    assert "Failed re-authentication" not in kafka.log()


# Java's stores


@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool comes with Java")
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_the_commands_that_a_refusal_names_do_convert_javas_stores(tmp_path: Path, kind: str) -> None:
    def run(command: str) -> None:
        # The tools ask for passwords; here they are all the same.
        ran = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, input="secret\n" * 4, text=True, capture_output=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def command_in(error: peer.BadSetting, *passwords: str) -> str:
        command = str(error).partition("convert it: ")[2]
        return command.replace("keytool ", f"keytool {passwords[0]} ").replace("pkcs12 ", "pkcs12 -passin pass:secret ")

    ca, store = CERTIFICATES / "ca.pem", "-storepass secret -noprompt"
    run(f"keytool -importcert {store} -alias ca -file {ca} -keystore trust -storetype {kind}")
    own = f"-in {OWN['ssl_certfile']} -inkey {OWN['ssl_keyfile']}"
    run(f"openssl pkcs12 -export {own} -out made.p12 -passout pass:secret")
    passwords = "-srcstorepass secret -deststorepass secret -noprompt"
    run(f"keytool -importkeystore {passwords} -srckeystore made.p12 -destkeystore keys -deststoretype {kind}")
    with pytest.raises(peer.BadSetting, match=kind) as refusal:
        tls_context(ssl_truststore_location=str(tmp_path / "trust"))
    run(command_in(refusal.value, "-storepass secret"))
    with pytest.raises(peer.BadSetting, match=kind) as refusal:
        tls_context(ssl_keystore_location=str(tmp_path / "keys"))
    run(command_in(refusal.value, passwords))
    tls_context(
        ssl_truststore_location=str(tmp_path / "trusted.pem"), ssl_keystore_location=str(tmp_path / "client.pem")
    )
