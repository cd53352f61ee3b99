"""DescribeAcls (29), versions 1-3: the committed access rules that fit a filter. SECURITY_DISABLED without an
authoriser, as in Kafka."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.handlers.access_rules import check_access, filter_of
from semel.broker.node_info import NodeInfo
from semel.controller.acls import check_filter, rule_of
from semel.log.errors import Refused
from semel.security.access_rules import matches_filter
from semel.wire.spec.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(
    request: DescribeAclsRequest, context: RequestContext, *, node: NodeInfo, cluster: ClusterView
) -> DescribeAclsResponse:
    try:
        check_access(context, Operation.DESCRIBE, node)
        wanted = filter_of(request)
        check_filter(wanted)
    except Refused as refusal:
        return DescribeAclsResponse(error_code=refusal.code, error_message=refusal.text)
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for record in cluster.image.acls.values():
        rule = rule_of(record)
        if matches_filter(rule, wanted):
            found.setdefault((rule.resource_type, rule.resource_name, rule.pattern_type), []).append(
                AclDescription(
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
            )
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in found.items()
        ]
    )
