"""CreateAcls (30), versions 1-3. Without an authoriser nothing would follow the rules: SECURITY_DISABLED for each."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.access_rules import refuse_rules
from semel.log.errors import Refused
from semel.wire.spec.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    try:
        refuse_rules(context, Operation.ALTER)
    except Refused as refusal:
        result = AclCreationResult(error_code=refusal.code, error_message=refusal.text)
        return CreateAclsResponse(results=[result] * len(request.creations))
