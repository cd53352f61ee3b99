"""AlterPartition (56), versions 2-3: leaders ask for other ISRs."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def handle(
    request: AlterPartitionRequest, context: RequestContext, *, active_controller: ActiveController
) -> AlterPartitionResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
    except Refused as refusal:
        return AlterPartitionResponse(error_code=refusal.code)
    return await active_controller.alter_partition(request)
