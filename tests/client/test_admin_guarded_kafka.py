"""The admin on Apache Kafka alone: credentials, access rules, quotas, replicas. Our broker serves none of them yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from admin_steps import eventually

from apache_kafka import ApacheKafka, skip_reason
from semel.client.admin.admin import Admin
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.security_values import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    QuotaEntity,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
)
from semel.client.admin.values import ElectionType, NewTopic
from semel.client.errors import AuthenticationFailed, BrokerRefused, UnknownTopic
from semel.client.metadata import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A node with listeners that want a login, and with access rules."""
    reason = skip_reason()
    if reason is not None:
        pytest.skip(reason)
    node = ApacheKafka(
        tmp_path_factory.mktemp("guarded"),
        secure=True,
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
        },
    ).start()
    yield node
    node.reap()


@pytest.fixture
async def admin(guarded: ApacheKafka) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=guarded.address) as made:
        yield made


@pytest.mark.parametrize("mechanism", [ScramMechanism.SHA_256, ScramMechanism.SHA_512])
async def test_a_password_that_was_set_lets_its_user_in(
    admin: Admin, guarded: ApacheKafka, unique: Callable[[str], str], mechanism: ScramMechanism
) -> None:
    user = unique("user")
    await admin.alter_user_scram_credentials(ScramCredential(user, "pencil", mechanism))
    found = await eventually(lambda: admin.describe_user_scram_credentials([user, "nobody"]), bool)
    assert found == {user: {mechanism: 8192}}
    assert user in await admin.describe_user_scram_credentials()
    login: dict[str, Any] = {
        "bootstrap_servers": guarded.address_of("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism.sasl_name,
        "sasl_plain_username": user,
    }
    async with Admin(**login, sasl_plain_password="pencil") as other:
        assert (await other.describe_cluster()).nodes
    with pytest.raises(AuthenticationFailed):
        await Admin(**login, sasl_plain_password="crayon").start()
    await admin.alter_user_scram_credentials(ScramDeletion(user, mechanism))
    assert await eventually(lambda: admin.describe_user_scram_credentials(user), lambda found: not found) == {}
    with pytest.raises(BrokerRefused, match="RESOURCE_NOT_FOUND"):
        await admin.alter_user_scram_credentials(ScramDeletion(user, mechanism))


async def test_access_rules_are_created_found_and_deleted(admin: Admin, unique: Callable[[str], str]) -> None:
    name = unique("topic")
    literal = AclBinding(AclResourceType.TOPIC, name, "User:alice", AclOperation.READ)
    prefixed = AclBinding(
        AclResourceType.TOPIC,
        name[:-3],
        "User:bob",
        AclOperation.WRITE,
        AclPermission.DENY,
        AclPatternType.PREFIXED,
        "10.0.0.1",
    )
    await admin.create_acls([literal, prefixed])
    await admin.create_acls(literal)
    fitting = AclFilter(AclResourceType.TOPIC, name, pattern_type=AclPatternType.MATCH)
    found = await eventually(lambda: admin.describe_acls(fitting), lambda found: len(found) == 2)
    assert sorted(found) == sorted([literal, prefixed])
    assert await admin.describe_acls(AclFilter(AclResourceType.TOPIC, name)) == [literal]
    assert literal in await admin.describe_acls()
    one, none = AclFilter(principal="User:bob", resource_name=name[:-3]), AclFilter(resource_name=unique("nothing"))
    assert await admin.delete_acls([one, none]) == {one: [prefixed], none: []}
    with pytest.raises(BrokerRefused):
        await admin.create_acls(AclBinding(AclResourceType.TOPIC, "t", "nobody", AclOperation.READ))
    await admin.delete_acls(AclFilter(resource_name=name))


async def test_quotas_are_set_found_and_removed(admin: Admin, unique: Callable[[str], str]) -> None:
    user = unique("user")
    mine, default = QuotaEntity(user=user, client_id="app"), QuotaEntity(client_id="")
    await admin.alter_client_quotas({mine: {"producer_byte_rate": 1024.0}, default: {"consumer_byte_rate": 9e9}})
    by_user = {"user": user, "client-id": None}
    found = await eventually(lambda: admin.describe_client_quotas(by_user), bool)
    assert found == {mine: {"producer_byte_rate": 1024}}
    found = await admin.describe_client_quotas()
    assert found[default] == {"consumer_byte_rate": 9e9}
    assert mine in found
    assert await admin.describe_client_quotas({"client-id": ""}, strict=True) == {default: {"consumer_byte_rate": 9e9}}
    await admin.alter_client_quotas({mine: {"producer_byte_rate": None}, default: {"consumer_byte_rate": None}})
    assert await eventually(lambda: admin.describe_client_quotas(by_user), lambda found: not found) == {}
    with pytest.raises(BrokerRefused):
        await admin.alter_client_quotas({mine: {"nonsense_rate": 1.0}})


async def test_elections_and_moves_on_a_single_node(admin: Admin, unique: Callable[[str], str]) -> None:
    name = unique("topic")
    await admin.create_topics(NewTopic(name, 2, 1))
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    assert await admin.elect_leaders(name) == {first: False, second: False}
    assert await admin.elect_leaders(first, ElectionType.UNCLEAN) == {first: False}
    with pytest.raises(UnknownTopic):
        await admin.elect_leaders(TopicPartition(name, 9))
    assert await admin.list_partition_reassignments() == {}
    assert await admin.list_partition_reassignments(name) == {}
    await admin.alter_partition_reassignments({first: [1]})
    with pytest.raises(AdminErrors) as failed:
        await admin.alter_partition_reassignments({first: [7], second: None})
    assert {place.partition: error.code for place, error in failed.value.errors.items()} == {0: 39, 1: 85}
