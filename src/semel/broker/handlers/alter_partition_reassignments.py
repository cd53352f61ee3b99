"""AlterPartitionReassignments (45), versions 0-1: partitions move to other brokers.

Left out: timeouts, because the answer comes as soon as the decision is committed, and throttles.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, *, active_controller: ActiveController
) -> AlterPartitionReassignmentsResponse:
    try:
        context.authorise_cluster(Operation.ALTER)
    except Refused as refusal:
        return AlterPartitionReassignmentsResponse(error_code=refusal.code, error_message=refusal.text)
    return await active_controller.alter_partition_reassignments(request)
