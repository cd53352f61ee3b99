"""UnregisterBroker (key 64): an administrator says that a broker will not come back."""

from semel.wire.schema import I16, I32, Request, Response, Str


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible=0):
    broker_id: I32 = 0


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
