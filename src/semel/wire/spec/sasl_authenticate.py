"""SaslAuthenticate (key 36): carries the tokens of a SASL exchange."""

from semel.wire.schema import I16, I64, Bytes, Request, Response, Str, field


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible=2):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible=2):
    error_code: I16 = 0
    error_message: Str | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: I64 = field(default=0, since=1)
