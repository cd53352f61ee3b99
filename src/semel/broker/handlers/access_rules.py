"""What the three APIs of access rules have in common."""

from __future__ import annotations

from typing import Protocol

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.node_info import NodeInfo
from semel.log.errors import Refused
from semel.security.access_rules import AccessRule
from semel.wire.errors import ErrorCode


def check_access(context: RequestContext, operation: Operation, node: NodeInfo) -> None:
    """Raises Refused: not allowed, or SECURITY_DISABLED."""
    context.authorise_cluster(operation)
    if not node.config.str("authorizer.class.name"):
        raise Refused(
            ErrorCode.SECURITY_DISABLED,
            "no authoriser is configured (authorizer.class.name), so there are no access rules",
        )


class Filter(Protocol):
    """Of DescribeAcls and DeleteAcls."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def filter_of(wanted: Filter) -> AccessRule:
    return AccessRule(
        wanted.resource_type_filter,
        wanted.resource_name_filter or "",
        wanted.pattern_type_filter,
        wanted.principal_filter or "",
        wanted.host_filter or "",
        wanted.operation,
        wanted.permission_type,
    )
