"""ConsumerGroupHeartbeat (68), versions 0-1: a member of a KIP-848 group joins, stays, leaves, learns its partitions.

Left out: classic members in the same group (the online migration of KIP-848), and asking for each topic that matches a
pattern: who may read the group is given all of them, though reading needs a permission of its own.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.broker.handlers.join_group import caller_of
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


async def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext, *, groups: GroupCoordinator
) -> ConsumerGroupHeartbeatResponse:
    try:
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
        for name in request.subscribed_topic_names or ():
            context.authorise_topic(Operation.DESCRIBE, name)
        return await groups.consumer_heartbeat(request, caller_of(context))
    except Refused as refusal:
        return ConsumerGroupHeartbeatResponse(
            error_code=refusal.code, error_message=refusal.text, member_id=request.member_id or None
        )
