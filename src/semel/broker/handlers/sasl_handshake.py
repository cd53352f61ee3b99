"""SaslHandshake (17), version 1: the mechanism by which a connection is going to log in.

Left out: version 0, behind which tokens come without a header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.broker.context import RequestContext
from semel.rpc.served import CloseConnection
from semel.security.errors import LoginRefused
from semel.wire.errors import ErrorCode
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:  # a node on which nobody logs in does without
    from semel.security.logins import Login


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    login: Login | None = context.connection.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        is_offered = login.choose(request.mechanism)
    except LoginRefused as refusal:
        raise CloseConnection(str(refusal)) from refusal
    code = ErrorCode.NONE if is_offered else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=list(login.rules.mechanisms))
