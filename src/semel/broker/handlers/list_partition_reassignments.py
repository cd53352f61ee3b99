"""ListPartitionReassignments (46), version 0: what moves to other brokers at the moment."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext, *, active_controller: ActiveController
) -> ListPartitionReassignmentsResponse:
    try:
        context.authorise_cluster(Operation.DESCRIBE)
    except Refused as refusal:
        return ListPartitionReassignmentsResponse(error_code=refusal.code, error_message=refusal.text)
    return await active_controller.list_partition_reassignments(request)
