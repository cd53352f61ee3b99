"""SaslAuthenticate (36), versions 0-2: one round of a login.

A login that fails is answered late, and in the same words whatever was wrong; then the connection ends. What was wrong
is in the log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from semel.broker.context import RequestContext
from semel.host.complaints import Complaints
from semel.security.errors import LoginRefused
from semel.wire.errors import ErrorCode
from semel.wire.spec.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:  # a node on which nobody logs in does without
    from semel.security.logins import Login

logger = logging.getLogger("semel.security")
_complaints = Complaints(logger)

_CLOSE_AFTER_S = 1.0


async def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    connection = context.connection
    login: Login | None = connection.login
    if login is None:
        text = "nobody logs in on this port"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text)
    try:
        told = login.respond(bytes(request.auth_bytes))
    except LoginRefused as refusal:
        text = "a login from %s at %s failed: %s"
        _complaints.say("login", logging.WARNING, text, connection.peer, connection.listener, refusal)
        await asyncio.sleep(login.rules.delay_ms / 1000)
        connection.close_soon(_CLOSE_AFTER_S)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message="authentication failed: no such user, or a wrong password",
        )
    if told.principal is not None:
        connection.logged_in(told.principal, login.rules.session_ms)
    return SaslAuthenticateResponse(auth_bytes=told.answer, session_lifetime_ms=login.rules.session_ms)
