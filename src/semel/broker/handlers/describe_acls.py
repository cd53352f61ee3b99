"""DescribeAcls (29), versions 1-3. Without an authoriser there are no access rules: SECURITY_DISABLED, as in Kafka."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.access_rules import refuse_rules
from semel.log.errors import Refused
from semel.wire.spec.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    try:
        refuse_rules(context, Operation.DESCRIBE)
    except Refused as refusal:
        return DescribeAclsResponse(error_code=refusal.code, error_message=refusal.text)
