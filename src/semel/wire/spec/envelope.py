"""Envelope (key 58): a broker forwards a client's request to the active controller, as it came."""

from semel.wire.schema import I16, Bool, Bytes, Message, Request, Response, Str


class EnvelopeRequest(Request, key=58, versions="0", flexible=0):
    """`request_data` is the client's frame from its header on; `client_host_address` has 4 or 16 bytes."""

    request_data: Bytes = b""
    request_principal: Bytes | None = None
    client_host_address: Bytes = b""


class EnvelopeResponse(Response, key=58, versions="0", flexible=0):
    response_data: Bytes | None = None
    error_code: I16 = 0


class DefaultPrincipalData(Message, versions="0", flexible=0):
    """A principal in an envelope, which is prefixed by its version as an int16."""

    type: Str = ""
    name: Str = ""
    token_authenticated: Bool = False
