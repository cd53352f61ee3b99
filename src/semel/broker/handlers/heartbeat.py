"""Heartbeat (12), versions 0-4: a member of a classic group says that it is alive, and hears of rebalances."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.wire.spec.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(request: HeartbeatRequest, context: RequestContext, *, groups: GroupCoordinator) -> HeartbeatResponse:
    try:
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
        await groups.heartbeat(request)
    except Refused as refusal:
        return HeartbeatResponse(error_code=refusal.code)
    return HeartbeatResponse()
