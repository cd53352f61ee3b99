"""Sends on to the active controller what only that can decide, as it came, and gives back what it answers (KIP-590).

When no controller answers in time the client's connection is closed: it will ask again, here or at another broker.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from semel.log.errors import Refused
from semel.rpc.served import CloseConnection, Parts, ServedConnection
from semel.wire.codec import encode
from semel.wire.errors import ErrorCode
from semel.wire.spec.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from semel.broker.remote_controller import RemoteController

_PRINCIPAL_VERSION = (0).to_bytes(2, "big")
_LENGTH_BYTES = 4
_THIS_MACHINE = bytes((127, 0, 0, 1))


class Forwarder:
    """One of a broker that is not the active controller."""

    def __init__(self, controller: RemoteController) -> None:
        self._controller = controller

    async def forward(self, connection: ServedConnection, frame: bytes, what: str) -> Parts:
        """`frame` is the request with its header, without its length. The answer has its length."""
        request = EnvelopeRequest(
            request_data=frame,
            request_principal=_encoded(connection.principal),
            client_host_address=_address(connection.peer),
        )
        try:
            answer = await self._controller.ask(request, EnvelopeResponse, at_most=0)
        except Refused as refusal:
            raise CloseConnection(f"{what} cannot be sent on: {refusal.text}") from refusal
        if answer.error_code or answer.response_data is None:
            try:
                name = ErrorCode(answer.error_code).name
            except ValueError:
                name = str(answer.error_code)
            raise CloseConnection(f"{what}: the controller refuses its envelope: {name}")
        data = bytes(answer.response_data)
        return [len(data).to_bytes(_LENGTH_BYTES, "big") + data]


def _encoded(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    return _PRINCIPAL_VERSION + encode(DefaultPrincipalData(type=kind, name=name), 0)


def _address(peer: str) -> bytes:
    """Of a peer, which is `host:port`; a host that has no numbers is only met in tests."""
    host = peer.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return _THIS_MACHINE
