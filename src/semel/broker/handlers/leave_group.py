"""LeaveGroup (13), versions 0-5: members leave a group of the classic protocol; from version 3 on several at once."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.spec.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeavingMember, LeavingMemberResult

_MANY_SINCE = 3
_AT_ONCE = 1000


async def handle(
    request: LeaveGroupRequest, context: RequestContext, *, groups: GroupCoordinator, slices: Slices
) -> LeaveGroupResponse:
    many = context.version >= _MANY_SINCE
    leaving = list(request.members) if many else [LeavingMember(member_id=request.member_id)]
    try:
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
        results: list[LeavingMemberResult] = []
        for start in range(0, len(leaving), _AT_ONCE):
            results += await groups.leave(request.group_id, leaving[start : start + _AT_ONCE])
            if slices.step():
                await slices.next()
    except Refused as refusal:
        return LeaveGroupResponse(error_code=refusal.code)
    if many:
        return LeaveGroupResponse(members=results)
    return LeaveGroupResponse(error_code=results[0].error_code)
