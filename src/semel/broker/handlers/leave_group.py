"""LeaveGroup (13), versions 0-5: members leave a group of the classic protocol; from version 3 on several at once."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.wire.spec.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeavingMember

_MANY_SINCE = 3


async def handle(
    request: LeaveGroupRequest, context: RequestContext, *, groups: GroupCoordinator
) -> LeaveGroupResponse:
    many = context.version >= _MANY_SINCE
    leaving = list(request.members) if many else [LeavingMember(member_id=request.member_id)]
    try:
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
        results = await groups.leave(request.group_id, leaving)
    except Refused as refusal:
        return LeaveGroupResponse(error_code=refusal.code)
    if many:
        return LeaveGroupResponse(members=results)
    return LeaveGroupResponse(error_code=results[0].error_code)
