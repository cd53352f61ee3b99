"""DescribeAcls, CreateAcls and DeleteAcls on a node without an authoriser: as Kafka's, it says that security is off."""

from __future__ import annotations

import pytest
from broker_harness import Node, simulated

from semel.broker.authoriser import Operation, ResourceType
from semel.wire.errors import ErrorCode
from semel.wire.spec.create_acls import AclCreation, CreateAclsRequest
from semel.wire.spec.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from semel.wire.spec.describe_acls import DescribeAclsRequest

ANY, TOPIC, READ, ALLOW = 1, 2, 3, 3
DESCRIBE = DescribeAclsRequest(resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
CREATION = AclCreation(
    resource_type=TOPIC, resource_name="t", principal="User:a", host="*", operation=READ, permission_type=ALLOW
)
FILTER = DeleteAclsFilter(resource_type_filter=TOPIC, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)


@pytest.mark.parametrize("version", [1, 2, 3])
@simulated()
async def test_without_an_authoriser_security_is_disabled(node: Node, version: int) -> None:
    client = await node.client()
    described = await client.ask(DESCRIBE, version)
    assert (described.error_code, list(described.resources)) == (ErrorCode.SECURITY_DISABLED, [])
    assert "no authoriser" in described.error_message
    created = await client.ask(CreateAclsRequest(creations=[CREATION, CREATION]), version)
    assert [one.error_code for one in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = await client.ask(DeleteAclsRequest(filters=[FILTER, FILTER]), version)
    assert [(one.error_code, list(one.matching_acls)) for one in deleted.filter_results] == [
        (ErrorCode.SECURITY_DISABLED, [])
    ] * 2


class MayOnlyDescribe:
    def authorise(self, principal: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return (operation, resource) == (Operation.DESCRIBE, ResourceType.CLUSTER)


@simulated(authoriser=MayOnlyDescribe)
async def test_who_may_not_change_the_cluster_is_told_that_first(node: Node) -> None:
    client = await node.client()
    assert (await client.ask(DESCRIBE)).error_code == ErrorCode.SECURITY_DISABLED
    (created,) = (await client.ask(CreateAclsRequest(creations=[CREATION]))).results
    (deleted,) = (await client.ask(DeleteAclsRequest(filters=[FILTER]))).filter_results
    assert created.error_code == deleted.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
