"""UnregisterBroker (64), version 0: a broker will not come back. One that still runs is not stopped by it."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.spec.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(
    request: UnregisterBrokerRequest, context: RequestContext, *, active_controller: ActiveController
) -> UnregisterBrokerResponse:
    try:
        context.authorise_cluster(Operation.ALTER)
    except Refused as refusal:
        return UnregisterBrokerResponse(error_code=refusal.code, error_message=refusal.text)
    return await active_controller.unregister_broker(request)
