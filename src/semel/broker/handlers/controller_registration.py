"""ControllerRegistration (70), version 0: a controller says where it is and what it knows (KIP-919)."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse


async def handle(
    request: ControllerRegistrationRequest, context: RequestContext, *, active_controller: ActiveController
) -> ControllerRegistrationResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
    except Refused as refusal:
        return ControllerRegistrationResponse(error_code=refusal.code, error_message=refusal.text)
    return await active_controller.register_controller(request)
