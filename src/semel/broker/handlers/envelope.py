"""Envelope (58), version 0: a request of a client, as it came to a broker that cannot decide it (KIP-590).

The broker needs the permission to act for the cluster; what is inside is authorised as from the client itself. Only
APIs that brokers send on are served so.
"""

from __future__ import annotations

import ipaddress

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.inner_requests import InnerRequests, Sender
from semel.controller.active_controller import ActiveController
from semel.log.errors import Refused
from semel.wire.codec import decode
from semel.wire.errors import ErrorCode, WireError
from semel.wire.spec.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse

_VERSION_BYTES = 2


async def handle(
    request: EnvelopeRequest,
    context: RequestContext,
    *,
    inner_requests: InnerRequests,
    active_controller: ActiveController,
) -> EnvelopeResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
        active_controller.check()  # so that the broker looks for the one that is
        sender = Sender(
            principal=_principal(request.request_principal),
            peer=_address(request.client_host_address),
            listener=context.listener,
            number=context.connection.number,
        )
        answer = await inner_requests.answer(memoryview(request.request_data), sender)
    except Refused as refusal:
        return EnvelopeResponse(error_code=refusal.code)
    return EnvelopeResponse(response_data=answer)


def _principal(data: bytes | None) -> str:
    if data is None or len(data) < _VERSION_BYTES or int.from_bytes(data[:_VERSION_BYTES], "big") != 0:
        raise Refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "a principal of another form than version 0")
    try:
        principal = decode(DefaultPrincipalData, 0, bytes(data)[_VERSION_BYTES:])
    except WireError as error:
        raise Refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    return f"{principal.type}:{principal.name}"


def _address(data: bytes) -> str:
    try:
        address = ipaddress.ip_address(bytes(data))
    except ValueError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, f"an address of {len(data)} bytes") from error
    return f"[{address}]:0" if address.version == 6 else f"{address}:0"
