"""Our client on a node with TLS, logins and access rules: who may come in does, who may not is told, and at once."""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import semel
from secured_node import CERTIFICATES, MECHANISMS, SecuredNode
from semel.client.admin.security_values import (
    AclBinding,
    AclOperation,
    AclResourceType,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
)
from semel.client.admin.values import NewTopic
from semel.client.errors import AuthenticationFailed, SemelError
from semel.config.security_settings import STANDARD_AUTHORIZER

PATIENCE_S = 20.0
USERS = {"alice": "alice-secret", "mallory": "mallory-secret"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("secured"), USERS, {"authorizer.class.name": STANDARD_AUTHORIZER})
    try:
        made.start()
        asyncio.run(_add_users(made))
        yield made
    finally:
        made.reap()


async def _add_users(node: SecuredNode) -> None:
    everything = [
        AclBinding(kind, name, principal, AclOperation.ALL)
        for principal in ("User:alice", "User:client", "User:ANONYMOUS")
        for kind, name in (
            (AclResourceType.TOPIC, "*"),
            (AclResourceType.GROUP, "*"),
            (AclResourceType.CLUSTER, "kafka-cluster"),
            (AclResourceType.TRANSACTIONAL_ID, "*"),
        )
    ]
    async with semel.Admin(**node.as_admin()) as admin:
        for mechanism in (ScramMechanism.SHA_256, ScramMechanism.SHA_512):
            await admin.alter_user_scram_credentials(
                [ScramCredential(user, password, mechanism, 4096) for user, password in USERS.items()]
            )
        await admin.create_acls(everything)


async def write_and_read(settings: dict[str, Any], topic: str | None = None) -> str:
    """Small records and one that TLS cuts into many of its own."""
    name = topic or f"topic-{uuid.uuid4().hex[:8]}"
    values = [b"%d" % number for number in range(50)] + [b"x" * 500_000]
    async with semel.Admin(**settings) as admin:
        await admin.create_topics(NewTopic(name, partitions=1, replication_factor=1))
    async with semel.Producer(**settings) as producer:
        for value in values:
            await producer.send(name, value)
        await producer.flush()
    async with semel.Consumer(auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([semel.TopicPartition(name, 0)])
        read: list[bytes | None] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(read) < len(values):
                for messages in (await consumer.poll(1000)).values():
                    read += [message.value for message in messages]
    assert read == values
    return name


async def refused(settings: dict[str, Any]) -> str:
    with pytest.raises(AuthenticationFailed) as failure:
        async with semel.Admin(bootstrap_timeout_ms=5000, **settings):
            pass
    return str(failure.value)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_every_mechanism_lets_users_in(node: SecuredNode, listener: str, mechanism: str) -> None:
    await write_and_read(node.client(listener, mechanism, "alice", USERS["alice"]))


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
async def test_tls_lets_clients_in_with_and_without_a_certificate(node: SecuredNode, listener: str) -> None:
    await write_and_read(node.client(listener))


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_and_an_unknown_user_are_told_the_same_words(node: SecuredNode, mechanism: str) -> None:
    wrong = await refused(node.client("SASL_SSL", mechanism, "alice", "guessed"))
    unknown = await refused(node.client("SASL_SSL", mechanism, "nobody", "guessed"))
    assert wrong == unknown
    assert "no such user, or a wrong password" in wrong
    assert "a login from 127.0.0.1" in node.log()  # what peers bring about as often as they like is counted
    assert "guessed" not in node.log()
    assert not any(password in node.log() for password in node.users.values())


async def test_without_a_certificate_of_the_authority_nobody_comes_in(node: SecuredNode) -> None:
    settings = node.client("MUTUAL")
    del settings["ssl_certfile"], settings["ssl_keyfile"]
    assert "TLS" in await refused(settings)


async def test_a_client_that_does_not_trust_the_authority_goes_away(node: SecuredNode) -> None:
    settings = node.client("SSL", ssl_cafile=str(CERTIFICATES / "stranger.pem"))
    assert "certificate" in (await refused(settings)).lower()


async def test_a_mechanism_that_is_not_offered_is_named(node: SecuredNode) -> None:
    from semel.peer.security.oauthbearer import OAuthBearer

    settings = node.client("SASL_SSL") | {
        "sasl_mechanism": OAuthBearer.name,
        "sasl_oauth_token_provider": lambda: "a.b.c",
    }
    assert "it offers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in await refused(settings)


async def test_a_user_without_a_rule_may_do_nothing(node: SecuredNode) -> None:
    topic = await write_and_read(node.client("SASL_SSL", "SCRAM-SHA-512", "alice", USERS["alice"]))
    theirs = node.client("SASL_SSL", "SCRAM-SHA-512", "mallory", USERS["mallory"])
    async with semel.Admin(**theirs) as admin:
        with pytest.raises(SemelError, match="TOPIC_AUTHORIZATION_FAILED"):
            await admin.describe_topics(topic)
        with pytest.raises(SemelError):
            await admin.create_topics(NewTopic("mine", partitions=1, replication_factor=1))
    async with semel.Producer(**theirs) as producer:
        with pytest.raises(SemelError):
            await producer.send_and_wait(topic, b"forged")


async def test_a_user_who_is_deleted_comes_in_no_more(node: SecuredNode) -> None:
    async with semel.Admin(**node.as_admin()) as admin:
        await admin.alter_user_scram_credentials(ScramCredential("bob", "bob-secret", iterations=4096))
        assert (await admin.describe_user_scram_credentials("bob"))["bob"] == {ScramMechanism.SHA_512: 4096}
        settings = node.client("SASL_SSL", "SCRAM-SHA-512", "bob", "bob-secret")
        async with semel.Admin(**settings):
            pass
        await admin.alter_user_scram_credentials(ScramDeletion("bob", ScramMechanism.SHA_512))
    await refused(settings)


async def test_a_certificate_that_is_replaced_is_the_one_of_the_next_connection(tmp_path: Path) -> None:
    node = SecuredNode(tmp_path)
    try:
        node.start()
        async with semel.Producer(**node.client("SSL")) as producer:
            await producer.send_and_wait("t", b"before")
            await asyncio.sleep(1.1)
            broken = tmp_path / "broken.pem"
            broken.write_text("not a certificate")
            os.replace(broken, node.store)
            async with semel.Admin(**node.client("SSL")) as admin:
                assert await admin.list_topics()
            assert "goes on with the certificate as it was" in node.log()
            await asyncio.sleep(1.1)
            # One that clients do not trust: that of another authority, with its own key.
            fresh = tmp_path / "fresh.pem"
            fresh.write_bytes((CERTIFICATES / "client.pem").read_bytes() + (CERTIFICATES / "client.key").read_bytes())
            os.replace(fresh, node.store)
            await refused(node.client("SSL"))
            await producer.send_and_wait("t", b"after")  # its connection goes on
            await asyncio.sleep(1.1)
            shutil.copy(CERTIFICATES / "broker.store.pem", node.store)
            async with semel.Admin(**node.client("SSL")) as admin:
                assert await admin.list_topics()
        assert node.stop() == 0
    finally:
        node.reap()


async def test_a_session_ends_unless_the_client_logs_in_again(tmp_path: Path) -> None:
    node = SecuredNode(tmp_path, settings={"connections.max.reauth.ms": "1000"})
    try:
        node.start()
        async with semel.Producer(**node.as_admin()) as producer:
            for number in range(5):
                await producer.send_and_wait("t", b"%d" % number)
                await asyncio.sleep(0.6)
        assert "refused" not in node.log()
    finally:
        node.reap()
