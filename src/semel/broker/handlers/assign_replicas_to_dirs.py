"""AssignReplicasToDirs (73), version 0: a broker says in which directories its replicas are (KIP-858)."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse


async def handle(
    request: AssignReplicasToDirsRequest, context: RequestContext, *, active_controller: ActiveController
) -> AssignReplicasToDirsResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
    except Refused as refusal:
        return AssignReplicasToDirsResponse(error_code=refusal.code)
    return await active_controller.assign_replicas_to_dirs(request)
