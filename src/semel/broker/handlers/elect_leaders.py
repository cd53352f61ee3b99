"""ElectLeaders (43), versions 0-2: the first of the replicas leads again, or any, with records lost.

Left out: timeouts, because the answer comes as soon as the decision is committed.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


async def handle(
    request: ElectLeadersRequest, context: RequestContext, *, active_controller: ActiveController
) -> ElectLeadersResponse:
    try:
        context.authorise_cluster(Operation.ALTER)
    except Refused as refusal:
        return ElectLeadersResponse(error_code=refusal.code)
    return await active_controller.elect_leaders(request)
