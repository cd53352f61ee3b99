"""JoinGroup (11), versions 0-9: a member joins a group of the classic protocol and waits for the others."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.classic import Caller
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupResponse

_NO_PROTOCOL_SINCE = 7


async def handle(request: JoinGroupRequest, context: RequestContext, *, groups: GroupCoordinator) -> JoinGroupResponse:
    try:
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
        response = await groups.join(request, caller_of(context))
    except Refused as refusal:
        response = JoinGroupResponse(error_code=refusal.code, member_id=request.member_id)
    if response.protocol_name is None and context.version < _NO_PROTOCOL_SINCE:
        response.protocol_name = ""
    return response


def caller_of(context: RequestContext) -> Caller:
    host, _, _ = context.connection.peer.rpartition(":")
    return Caller(context.client_id or "", f"/{host}", context.version)
