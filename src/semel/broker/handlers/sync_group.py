"""SyncGroup (14), versions 0-5: the leader of a classic group hands out the assignment, the others fetch theirs."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupResponse

_NAMES_PROTOCOL_SINCE = 5


async def handle(request: SyncGroupRequest, context: RequestContext, *, groups: GroupCoordinator) -> SyncGroupResponse:
    try:
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
        if context.version >= _NAMES_PROTOCOL_SINCE and (
            request.protocol_type is None or request.protocol_name is None
        ):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "from version 5 on a member names its protocol")
        return await groups.sync(request)
    except Refused as refusal:
        return SyncGroupResponse(error_code=refusal.code)
