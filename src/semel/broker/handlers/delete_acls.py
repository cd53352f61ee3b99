"""DeleteAcls (31), versions 1-3: deletes access rules by filters. SECURITY_DISABLED without an authoriser."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.access_rules import check_access, filter_of
from semel.broker.node_info import NodeInfo
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.security.access_rules import AccessRule
from semel.wire.spec.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(
    request: DeleteAclsRequest, context: RequestContext, *, node: NodeInfo, active_controller: ActiveController
) -> DeleteAclsResponse:
    try:
        check_access(context, Operation.ALTER, node)
    except Refused as refusal:
        return DeleteAclsResponse(filter_results=[_result(refusal)] * len(request.filters))
    filters = [filter_of(one) for one in request.filters]
    return DeleteAclsResponse(filter_results=[_result(one) for one in await active_controller.delete_acls(filters)])


def _result(deleted: list[AccessRule] | Refused) -> DeleteAclsFilterResult:
    if isinstance(deleted, Refused):
        return DeleteAclsFilterResult(error_code=deleted.code, error_message=deleted.text)
    return DeleteAclsFilterResult(
        matching_acls=[
            DeleteAclsMatchingAcl(
                resource_type=rule.resource_type,
                resource_name=rule.resource_name,
                pattern_type=rule.pattern_type,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in deleted
        ]
    )
