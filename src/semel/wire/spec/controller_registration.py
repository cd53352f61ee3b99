"""ControllerRegistration (key 70): a controller tells the active one where it is and what it can do (KIP-919)."""

from semel.wire.schema import I16, I32, NO_UUID, U16, Array, Bool, Request, Response, Str, Struct, Uuid


class ControllerListener(Struct):
    name: Str = ""
    host: Str = ""
    port: U16 = 0
    security_protocol: I16 = 0


class ControllerFeature(Struct):
    name: Str = ""
    min_supported_version: I16 = 0
    max_supported_version: I16 = 0


class ControllerRegistrationRequest(Request, key=70, versions="0", flexible=0):
    controller_id: I32 = 0
    incarnation_id: Uuid = NO_UUID
    zk_migration_ready: Bool = False
    listeners: Array[ControllerListener] = ()
    features: Array[ControllerFeature] = ()


class ControllerRegistrationResponse(Response, key=70, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
