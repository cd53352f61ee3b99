"""BrokerHeartbeat (63), versions 0-2: a broker lives, wants to serve or wants to stop."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


async def handle(
    request: BrokerHeartbeatRequest, context: RequestContext, *, active_controller: ActiveController
) -> BrokerHeartbeatResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
    except Refused as refusal:
        return BrokerHeartbeatResponse(error_code=refusal.code)
    return await active_controller.heartbeat(request)
