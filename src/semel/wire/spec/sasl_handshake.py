"""SaslHandshake (key 17): a client names the SASL mechanism it will use. Never flexible."""

from semel.wire.schema import I16, Array, Request, Response, Str


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: Str = ""


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: I16 = 0
    mechanisms: Array[Str] = ()
