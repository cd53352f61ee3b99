"""Access rules on a node: how they are made, that they count at once, on every path, and what they keep out."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Node, batch_of, fetch_request, simulated
from transaction_harness import ID, TOPIC, V1, V2, TransactionalProducer, described, started, with_transactions

from semel.broker.authoriser import Operation, ResourceType
from semel.config.security_settings import STANDARD_AUTHORIZER
from semel.security.access_rules import AccessRule
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition import AlterPartitionRequest
from semel.wire.spec.create_acls import AclCreation, CreateAclsRequest
from semel.wire.spec.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from semel.wire.spec.describe_acls import DescribeAclsRequest
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.leave_group import LeaveGroupRequest, LeavingMember
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from semel.wire.spec.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

ANY, TOPIC_TYPE, READ, ALLOW, LITERAL, PREFIXED, MATCH = 1, 2, 3, 3, 3, 4, 2
DESCRIBE = DescribeAclsRequest(resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
CREATION = AclCreation(
    resource_type=TOPIC_TYPE, resource_name="t", principal="User:a", host="*", operation=READ, permission_type=ALLOW
)
FILTER = DeleteAclsFilter(resource_type_filter=TOPIC_TYPE, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
WITH_RULES = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}


@pytest.mark.parametrize("version", [1, 2, 3])
@simulated()
async def test_without_an_authoriser_security_is_disabled(node: Node, version: int) -> None:
    client = await node.client()
    told = await client.ask(DESCRIBE, version)
    assert (told.error_code, list(told.resources)) == (ErrorCode.SECURITY_DISABLED, [])
    assert "no authoriser" in told.error_message
    created = await client.ask(CreateAclsRequest(creations=[CREATION, CREATION]), version)
    assert [one.error_code for one in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = await client.ask(DeleteAclsRequest(filters=[FILTER, FILTER]), version)
    assert [(one.error_code, list(one.matching_acls)) for one in deleted.filter_results] == [
        (ErrorCode.SECURITY_DISABLED, [])
    ] * 2


class MayOnlyDescribe:
    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        return (operation, resource) == (Operation.DESCRIBE, ResourceType.CLUSTER)


@simulated(authoriser=MayOnlyDescribe)
async def test_who_may_not_change_the_cluster_is_told_that_first(node: Node) -> None:
    client = await node.client()
    assert (await client.ask(DESCRIBE)).error_code == ErrorCode.SECURITY_DISABLED
    (created,) = (await client.ask(CreateAclsRequest(creations=[CREATION]))).results
    (deleted,) = (await client.ask(DeleteAclsRequest(filters=[FILTER]))).filter_results
    assert created.error_code == deleted.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# -- with rules. In the simulated network addresses are names: "client1" is the first to connect.

OWNER, STRANGER = "client1", "client2"


async def allow(node: Node, operation: Operation, resource: ResourceType, name: str, host: str = OWNER) -> None:
    await decide(node, operation, resource, name, host, 3)


async def decide(
    node: Node, operation: Operation, resource: ResourceType, name: str, host: str, permission: int
) -> None:
    rule = AccessRule(resource, name, LITERAL, "User:ANONYMOUS", host, operation, permission)
    assert list(await node.broker.controller_part.channel.active.create_acls([rule])) == [None]  # type: ignore[union-attr]


async def allow_all(node: Node, host: str = OWNER) -> None:
    for resource, name in (
        (ResourceType.TOPIC, "*"),
        (ResourceType.GROUP, "*"),
        (ResourceType.TRANSACTIONAL_ID, "*"),
        (ResourceType.CLUSTER, "kafka-cluster"),
    ):
        await allow(node, Operation.ALL, resource, name, host)


@simulated(settings=WITH_RULES)
async def test_rules_are_created_once_described_and_deleted_and_survive_a_start(node: Node) -> None:
    await allow_all(node)
    client = await node.client()
    broken = [
        ("principal", "alice"),
        ("host", "10.0.0.0/8"),
        ("host", ""),
        ("operation", ANY),
        ("operation", 99),
        ("permission_type", ANY),
        ("resource_type", ANY),
        ("resource_pattern_type", MATCH),
        ("resource_name", ""),
    ]
    creations = [CREATION, CREATION, *(changed(name, value) for name, value in broken)]
    results = (await client.ask(CreateAclsRequest(creations=creations))).results
    assert [one.error_code for one in results] == [0, 0] + [ErrorCode.INVALID_REQUEST] * len(broken)
    assert "10.0.0.0/8" in results[3].error_message
    await client.ask(CreateAclsRequest(creations=[CREATION, changed("resource_pattern_type", PREFIXED)]))
    await node.restart()
    client = await stranger_as_owner(node)
    mine = DescribeAclsRequest(
        resource_type_filter=TOPIC_TYPE,
        resource_name_filter="test",
        pattern_type_filter=MATCH,
        principal_filter="User:a",
        operation=ANY,
        permission_type=ANY,
    )
    (found,) = (await client.ask(mine)).resources
    assert (found.resource_name, found.pattern_type, len(found.acls)) == ("t", PREFIXED, 1)
    by_user = DeleteAclsFilter(
        resource_type_filter=ANY,
        pattern_type_filter=ANY,
        principal_filter="User:a",
        operation=ANY,
        permission_type=ANY,
    )
    (deleted,) = (await client.ask(DeleteAclsRequest(filters=[by_user]))).filter_results
    assert [acl.pattern_type for acl in deleted.matching_acls] == [LITERAL, PREFIXED]
    assert all(acl.principal != "User:a" for one in (await client.ask(DESCRIBE)).resources for acl in one.acls)


def changed(name: str, value: Any) -> AclCreation:
    fields = {field: getattr(CREATION, field) for field in CREATION._fields}
    return AclCreation(**{**fields, name: value})


async def stranger_as_owner(node: Node) -> Any:
    """After a start: the next client to connect may do everything."""
    await allow_all(node, f"client{node._clients + 1}")
    return await node.client()


@simulated(settings=WITH_RULES)
async def test_a_change_counts_for_the_next_request_also_on_the_fast_path(node: Node) -> None:
    await allow_all(node)
    client = await node.client()
    await client.create_topic("t")
    for _ in range(3):  # the third is served by a lane
        assert (await client.produce("t", batch_of(b"a"))).error_code == 0
        assert (await client.ask(fetch_request({("t", 0): 0}), 12)).responses[0].partitions[0].error_code == 0
    await decide(node, Operation.WRITE, ResourceType.TOPIC, "t", OWNER, 2)
    assert (await client.produce("t", batch_of(b"b"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await decide(node, Operation.READ, ResourceType.TOPIC, "t", OWNER, 2)
    refused = (await client.ask(fetch_request({("t", 0): 0}), 12)).responses[0].partitions[0].error_code
    assert refused == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert node.broker.topics.partition("t", 0).log.end_offset == 3


@simulated(settings=WITH_RULES)
async def test_a_lane_of_one_address_is_not_for_another(node: Node) -> None:
    await allow_all(node)
    owner, stranger = await node.client(), await node.client()
    await owner.create_topic("t")
    await allow(node, Operation.WRITE, ResourceType.TOPIC, "mine", STRANGER)
    for _ in range(3):
        assert (await owner.produce("t", batch_of(b"a"))).error_code == 0
    for _ in range(3):
        assert (await stranger.produce("t", batch_of(b"b"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert node.broker.topics.partition("t", 0).log.end_offset == 3


@simulated(settings=WITH_RULES)
async def test_a_producer_id_needs_one_topic_to_write_to_or_the_permission_on_the_cluster(node: Node) -> None:
    client, other = await node.client(), await node.client()
    request = InitProducerIdRequest(transactional_id=None)
    assert (await client.ask(request)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await allow(node, Operation.WRITE, ResourceType.TOPIC, "t")
    await allow(node, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster", STRANGER)
    assert (await client.ask(request)).error_code == (await other.ask(request)).error_code == 0


@simulated(settings=WITH_RULES)
async def test_nobody_is_shown_what_they_may_not_know(node: Node) -> None:
    await allow_all(node)
    owner = await with_transactions(node)
    stranger = await node.client()
    producer = await started(owner, V1)
    assert await producer.add(0) == 0
    await allow(node, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ID, STRANGER)
    assert [topic.topic for topic in (await described(owner)).topics] == [TOPIC]
    seen = await described(stranger)
    assert (seen.error_code, list(seen.topics)) == (0, [])
    assert list((await stranger.ask(MetadataRequest(topics=None))).topics) == []


@pytest.mark.parametrize("versions", [V1, V2])
@simulated(settings=WITH_RULES)
async def test_nobody_writes_into_the_transaction_of_another(node: Node, versions: Any) -> None:
    """With producer id and epoch, which are no secret, and a transactional id of one's own, or none."""
    await allow_all(node)
    owner = await with_transactions(node)
    stranger = await node.client()
    await allow(node, Operation.WRITE, ResourceType.TOPIC, TOPIC, STRANGER)
    await allow(node, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "other", STRANGER)
    producer = await started(owner, versions)
    if versions is V1:
        assert await producer.add(0) == 0
    assert await producer.write(b"mine") == 0
    posing = TransactionalProducer(stranger, versions)
    posing.producer_id, posing.epoch = producer.identity
    posing.sequences[TOPIC, 0] = 1
    assert await posing.write(b"forged") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    posing.sequences[TOPIC, 0] = 1
    posing.transactional_id = "other"
    assert await posing.init() == 0
    posing.producer_id, posing.epoch = producer.identity
    posing.sequences[TOPIC, 0] = 1
    assert await posing.write(b"forged") != 0
    posing.transactional_id = None  # type: ignore[assignment]
    posing.sequences[TOPIC, 0] = 1
    assert await posing.write(b"forged") != 0
    posing.transactional_id = ID
    assert await posing.commit() == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await posing.abort() == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert node.broker.topics.partition(TOPIC, 0).log.end_offset == 1
    assert await producer.commit() == 0


@simulated(settings=WITH_RULES)
async def test_a_plain_client_writes_no_markers_and_changes_no_isr(node: Node) -> None:
    await allow_all(node)
    owner = await with_transactions(node)
    stranger = await node.client()
    producer = await started(owner, V1)
    assert await producer.add(0) == 0
    assert await producer.write(b"half") == 0
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=True,
        coordinator_epoch=0,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
    )
    answer = await stranger.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert node.broker.topics.partition(TOPIC, 0).log.end_offset == 1
    with pytest.raises((ConnectionError, EOFError)):  # it is not served where clients come
        await stranger.ask(AlterPartitionRequest(broker_id=1), 2)


@simulated(settings=WITH_RULES)
async def test_strangers_neither_leave_for_a_member_nor_commit_for_a_group(node: Node) -> None:
    await allow_all(node)
    await node.client()
    stranger = await node.client()
    await allow(node, Operation.READ, ResourceType.TOPIC, TOPIC, STRANGER)
    left = await stranger.ask(LeaveGroupRequest(group_id="g", members=[LeavingMember(member_id="m")]))
    assert left.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
            )
        ],
    )
    answer = await stranger.ask(commit, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("with_rules", [True, False])
def test_internal_topics_are_written_by_their_coordinators_alone(with_rules: bool) -> None:
    @simulated(settings=WITH_RULES if with_rules else None)
    async def scenario(node: Node) -> None:
        if with_rules:
            await allow_all(node)
        client = await with_transactions(node)
        for _ in range(2):
            told = await client.produce("__transaction_state", batch_of(b"forged"))
            assert told.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    scenario()
