"""CreateAcls (30), versions 1-3: new access rules, each decided on its own. SECURITY_DISABLED without an authoriser."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.access_rules import check_access
from semel.broker.node_info import NodeInfo
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.security.access_rules import AccessRule
from semel.wire.spec.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(
    request: CreateAclsRequest, context: RequestContext, *, node: NodeInfo, active_controller: ActiveController
) -> CreateAclsResponse:
    try:
        check_access(context, Operation.ALTER, node)
    except Refused as refusal:
        return CreateAclsResponse(results=[_result(refusal)] * len(request.creations))
    wanted = [
        AccessRule(
            one.resource_type,
            one.resource_name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in request.creations
    ]
    return CreateAclsResponse(results=[_result(one) for one in await active_controller.create_acls(wanted)])


def _result(refusal: Refused | None) -> AclCreationResult:
    if refusal is None:
        return AclCreationResult()
    return AclCreationResult(error_code=refusal.code, error_message=refusal.text)
