"""BrokerRegistration (62), versions 0-4: a broker starts, and gets the epoch of this start."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


async def handle(
    request: BrokerRegistrationRequest, context: RequestContext, *, active_controller: ActiveController
) -> BrokerRegistrationResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
    except Refused as refusal:
        return BrokerRegistrationResponse(error_code=refusal.code)
    return await active_controller.register_broker(request)
