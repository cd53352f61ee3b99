"""DeleteAcls (31), versions 1-3. Without an authoriser there are no access rules: SECURITY_DISABLED for each filter."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.access_rules import refuse_rules
from semel.log.errors import Refused
from semel.wire.spec.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    try:
        refuse_rules(context, Operation.ALTER)
    except Refused as refusal:
        result = DeleteAclsFilterResult(error_code=refusal.code, error_message=refusal.text)
        return DeleteAclsResponse(filter_results=[result] * len(request.filters))
