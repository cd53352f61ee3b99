"""AllocateProducerIds (67), version 0: a block of producer ids for a broker."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def handle(
    request: AllocateProducerIdsRequest, context: RequestContext, *, active_controller: ActiveController
) -> AllocateProducerIdsResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
    except Refused as refusal:
        return AllocateProducerIdsResponse(error_code=refusal.code)
    return await active_controller.allocate_producer_ids(request)
