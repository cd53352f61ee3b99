"""Credentials, access rules, quotas and replicas through the admin, on scripted nodes: ours does not serve them yet."""

from __future__ import annotations

import hashlib

import pytest
from admin_fakes import FakeCluster, InTurn, faked

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
from semel.client.admin.values import ElectionType, Reassignment
from semel.client.errors import BadSetting, BrokerRefused, UnsupportedByBroker
from semel.client.metadata import TopicPartition
from semel.wire.errors import ErrorCode
from semel.wire.spec import alter_client_quotas as altering
from semel.wire.spec import describe_client_quotas as describing
from semel.wire.spec.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from semel.wire.spec.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from semel.wire.spec.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from semel.wire.spec.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from semel.wire.spec.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from semel.wire.spec.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
)
from semel.wire.spec.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)
from semel.wire.spec.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

# -- SCRAM


def altered(**codes: int) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=user, error_code=code) for user, code in codes.items()]
    )


@faked(1)
async def test_a_password_is_sent_salted_and_never_shown(cluster: FakeCluster) -> None:
    cluster.answers[AlterUserScramCredentialsRequest] = lambda node_id, request: altered(alice=0, bob=0)
    salt = b"0123456789abcdef"
    credential = ScramCredential("alice", "pencil", ScramMechanism.SHA_256, 4096, salt)
    assert "pencil" not in repr(credential)
    async with cluster.admin() as admin:
        await admin.alter_user_scram_credentials(
            [credential, ScramDeletion("bob", ScramMechanism.SHA_512), ScramCredential("bob", "x")]
        )
    (request,) = cluster.requests(AlterUserScramCredentialsRequest)
    first, second = request.upsertions
    assert bytes(first.salted_password) == hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    assert (first.name, first.mechanism, first.iterations, bytes(first.salt)) == ("alice", 1, 4096, salt)
    assert bytes(second.salted_password) == hashlib.pbkdf2_hmac("sha512", b"x", bytes(second.salt), second.iterations)
    assert len(second.salt) >= 16
    assert [(one.name, one.mechanism) for one in request.deletions] == [("bob", 2)]


@faked(1)
async def test_salts_differ(cluster: FakeCluster) -> None:
    cluster.answers[AlterUserScramCredentialsRequest] = lambda node_id, request: altered(alice=0)
    async with cluster.admin() as admin:
        for _ in range(2):
            await admin.alter_user_scram_credentials(ScramCredential("alice", "pencil", iterations=4096))
    salts = {bytes(request.upsertions[0].salt) for request in cluster.requests(AlterUserScramCredentialsRequest)}
    assert len(salts) == 2


@faked(1)
async def test_weak_or_unknown_credentials_are_refused_before_anything_is_sent(cluster: FakeCluster) -> None:
    async with cluster.admin() as admin:
        for bad in (
            ScramCredential("u", "p", iterations=4095),
            ScramCredential("u", "p", iterations=1 << 20),
            ScramCredential("u", "p", ScramMechanism.UNKNOWN),
            ScramCredential("", "p"),
            ScramCredential("u", ""),
        ):
            with pytest.raises(BadSetting):
                await admin.alter_user_scram_credentials(bad)
    assert cluster.asked == []


@faked(1)
async def test_a_credential_that_is_gone_after_a_lost_answer_was_deleted(cluster: FakeCluster) -> None:
    cluster.answers[AlterUserScramCredentialsRequest] = InTurn(
        None, altered(u=ErrorCode.RESOURCE_NOT_FOUND), altered(u=ErrorCode.RESOURCE_NOT_FOUND)
    )
    deletion = ScramDeletion("u", ScramMechanism.SHA_256)
    async with cluster.admin() as admin:
        await admin.alter_user_scram_credentials(deletion)
        with pytest.raises(BrokerRefused, match="RESOURCE_NOT_FOUND"):
            await admin.alter_user_scram_credentials(deletion)


@faked(1)
async def test_credentials_are_described_and_users_without_are_left_out(cluster: FakeCluster) -> None:
    cluster.answers[DescribeUserScramCredentialsRequest] = lambda node_id, request: (
        DescribeUserScramCredentialsResponse(
            results=[
                DescribeUserScramCredentialsResult(
                    user="alice", credential_infos=[ScramCredentialInfo(mechanism=1, iterations=4096)]
                ),
                DescribeUserScramCredentialsResult(user="nobody", error_code=ErrorCode.RESOURCE_NOT_FOUND),
            ]
        )
    )
    async with cluster.admin() as admin:
        found = await admin.describe_user_scram_credentials(["alice", "nobody"])
        assert found == {"alice": {ScramMechanism.SHA_256: 4096}}
        assert await admin.describe_user_scram_credentials([]) == {}
        await admin.describe_user_scram_credentials()
        asked = cluster.requests(DescribeUserScramCredentialsRequest)
        assert [request.users is None for request in asked] == [False, True]
        broken = DescribeUserScramCredentialsResult(user="bob", error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        cluster.answers[DescribeUserScramCredentialsRequest] = InTurn(
            DescribeUserScramCredentialsResponse(results=[broken])
        )
        with pytest.raises(BrokerRefused, match="bob"):
            await admin.describe_user_scram_credentials()


# -- access rules

RULE = AclBinding(AclResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
OTHER = AclBinding(
    AclResourceType.GROUP,
    "g",
    "User:bob",
    AclOperation.ALL,
    AclPermission.DENY,
    AclPatternType.PREFIXED,
    "10.0.0.1",
)


@faked(1)
async def test_access_rules_are_created_one_by_one(cluster: FakeCluster) -> None:
    cluster.answers[CreateAclsRequest] = lambda node_id, request: CreateAclsResponse(
        results=[AclCreationResult(), AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message="no")]
    )
    async with cluster.admin() as admin:
        with pytest.raises(AdminErrors) as failed:
            await admin.create_acls([RULE, OTHER])
    assert list(failed.value.results) == [RULE]
    assert list(failed.value.errors) == [OTHER]
    (request,) = cluster.requests(CreateAclsRequest)
    other = request.creations[1]
    assert (other.resource_type, other.resource_name, other.resource_pattern_type) == (3, "g", 4)
    assert (other.principal, other.host, other.operation, other.permission_type) == ("User:bob", "10.0.0.1", 2, 2)


@faked(1)
async def test_access_rules_are_found_by_filters(cluster: FakeCluster) -> None:
    cluster.answers[DescribeAclsRequest] = lambda node_id, request: DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=2,
                resource_name="t",
                pattern_type=3,
                acls=[AclDescription(principal="User:alice", host="*", operation=3, permission_type=3)],
            )
        ]
    )
    async with cluster.admin() as admin:
        assert await admin.describe_acls() == [RULE]
        await admin.describe_acls(AclFilter(AclResourceType.TOPIC, "t", pattern_type=AclPatternType.MATCH))
    whole, some = cluster.requests(DescribeAclsRequest)
    assert (whole.resource_type_filter, whole.pattern_type_filter, whole.operation, whole.permission_type) == (1,) * 4
    assert (whole.resource_name_filter, whole.principal_filter, whole.host_filter) == (None, None, None)
    assert (some.resource_type_filter, some.resource_name_filter, some.pattern_type_filter) == (2, "t", 2)


@faked(1)
async def test_access_rules_are_deleted_by_filters(cluster: FakeCluster) -> None:
    matching = DeleteAclsMatchingAcl(
        resource_type=2, resource_name="t", principal="User:alice", host="*", operation=3, permission_type=3
    )
    broken = DeleteAclsMatchingAcl(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    cluster.answers[DeleteAclsRequest] = lambda node_id, request: DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(matching_acls=[matching]),
            DeleteAclsFilterResult(),
            DeleteAclsFilterResult(matching_acls=[matching, broken]),
        ]
    )
    filters = [AclFilter(resource_name=name) for name in ("t", "nothing", "broken")]
    async with cluster.admin() as admin:
        with pytest.raises(AdminErrors) as failed:
            await admin.delete_acls(filters)
    assert failed.value.results == {filters[0]: [RULE], filters[1]: []}
    assert list(failed.value.errors) == [filters[2]]


# -- quotas


@faked(1)
async def test_quotas_are_changed_and_removed(cluster: FakeCluster) -> None:
    alice, default = QuotaEntity(user="alice", client_id=""), QuotaEntity(ip="")
    cluster.answers[altering.AlterClientQuotasRequest] = lambda node_id, request: altering.AlterClientQuotasResponse(
        entries=[altering.QuotaAlterationResult(entity=entry.entity) for entry in request.entries]
    )
    async with cluster.admin() as admin:
        await admin.alter_client_quotas(
            {alice: {"producer_byte_rate": 10.0, "request_percentage": None}, default: {"connection_creation_rate": 1}}
        )
        with pytest.raises(BadSetting):
            await admin.alter_client_quotas({QuotaEntity(): {"producer_byte_rate": 1.0}})
    first, second = cluster.requests(altering.AlterClientQuotasRequest)[0].entries
    assert [(one.entity_type, one.entity_name) for one in first.entity] == [("user", "alice"), ("client-id", None)]
    assert [(one.key, one.value, one.remove) for one in first.ops] == [
        ("producer_byte_rate", 10.0, False),
        ("request_percentage", 0.0, True),
    ]
    assert [(one.entity_type, one.entity_name) for one in second.entity] == [("ip", None)]


@faked(1)
async def test_quotas_are_found_by_whom_they_limit(cluster: FakeCluster) -> None:
    entity = [describing.QuotaEntity(entity_type="user", entity_name=None)]
    values = [describing.QuotaValue(key="producer_byte_rate", value=5.0)]
    cluster.answers[describing.DescribeClientQuotasRequest] = lambda node_id, request: (
        describing.DescribeClientQuotasResponse(entries=[describing.QuotaEntry(entity=entity, values=values)])
    )
    async with cluster.admin() as admin:
        found = await admin.describe_client_quotas({"user": "", "client-id": "x", "ip": None}, strict=True)
        assert found == {QuotaEntity(user=""): {"producer_byte_rate": 5.0}}
        with pytest.raises(BadSetting, match="client-id"):
            await admin.describe_client_quotas({"client_id": "x"})
    (request,) = cluster.requests(describing.DescribeClientQuotasRequest)
    asked = [(one.entity_type, one.match_type, one.match) for one in request.components]
    assert asked == [("user", 1, None), ("client-id", 0, "x"), ("ip", 2, None)]
    assert request.strict


# -- replicas


def elected(*codes: int) -> ElectLeadersResponse:
    results = [ElectLeadersPartitionResult(partition_id=index, error_code=code) for index, code in enumerate(codes)]
    return ElectLeadersResponse(replica_election_results=[ElectLeadersTopicResult(topic="t", partition_result=results)])


@faked(1)
async def test_an_election_that_is_not_needed_is_no_error(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1, 1]}
    cluster.answers[ElectLeadersRequest] = InTurn(
        ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER), elected(0, ErrorCode.ELECTION_NOT_NEEDED)
    )
    async with cluster.admin() as admin:
        assert await admin.elect_leaders("t") == {T0: True, T1: False}
        cluster.answers[ElectLeadersRequest] = InTurn(ElectLeadersResponse(error_code=31))
        with pytest.raises(AdminErrors):
            await admin.elect_leaders("t", ElectionType.UNCLEAN)
    assert [request.election_type for request in cluster.requests(ElectLeadersRequest)] == [0, 0, 1]


@faked(1)
async def test_an_unclean_election_is_not_asked_of_a_broker_that_would_hold_a_clean_one(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1]}
    cluster.limits = {43: 0}
    async with cluster.admin() as admin:
        with pytest.raises(UnsupportedByBroker):
            await admin.elect_leaders(T0, ElectionType.UNCLEAN)


@faked(1)
async def test_partitions_are_moved_and_moves_are_called_off_and_listed(cluster: FakeCluster) -> None:
    results = [
        ReassignablePartitionResponse(partition_index=0),
        ReassignablePartitionResponse(partition_index=1, error_code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ]
    cluster.answers[AlterPartitionReassignmentsRequest] = InTurn(
        AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER),
        AlterPartitionReassignmentsResponse(responses=[ReassignableTopicResponse(name="t", partitions=results)]),
    )
    ongoing = OngoingPartitionReassignment(partition_index=0, replicas=[1, 2], adding_replicas=[2])
    cluster.answers[ListPartitionReassignmentsRequest] = lambda node_id, request: ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="t", partitions=[ongoing])]
    )
    async with cluster.admin() as admin:
        with pytest.raises(AdminErrors) as failed:
            await admin.alter_partition_reassignments({T0: [2], T1: None})
        assert list(failed.value.results) == [T0]
        assert await admin.list_partition_reassignments() == {T0: Reassignment((1, 2), (2,), ())}
        await admin.list_partition_reassignments([T0])
    (topic,) = cluster.requests(AlterPartitionReassignmentsRequest)[0].topics
    assert [one.replicas and list(one.replicas) for one in topic.partitions] == [[2], None]
    whole, some = cluster.requests(ListPartitionReassignmentsRequest)
    assert whole.topics is None
    assert [(one.name, list(one.partition_indexes)) for one in some.topics] == [("t", [0])]
