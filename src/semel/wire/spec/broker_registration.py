"""BrokerRegistration (key 62): a broker registers with the controller when it starts."""

from semel.wire.schema import I16, I32, I64, NO_UUID, U16, Array, Bool, Request, Response, Str, Struct, Uuid, field


class BrokerListener(Struct):
    name: Str = ""
    host: Str = ""
    port: U16 = 0
    security_protocol: I16 = 0


class BrokerFeature(Struct):
    name: Str = ""
    min_supported_version: I16 = 0
    max_supported_version: I16 = 0


class BrokerRegistrationRequest(Request, key=62, versions="0-4", flexible=0):
    broker_id: I32 = 0
    cluster_id: Str = ""
    incarnation_id: Uuid = NO_UUID
    listeners: Array[BrokerListener] = ()
    features: Array[BrokerFeature] = ()
    rack: Str | None = None
    is_migrating_zk_broker: Bool = field(default=False, since=1)
    log_dirs: Array[Uuid] = field(default=(), since=2)
    previous_broker_epoch: I64 = field(default=-1, since=3)


class BrokerRegistrationResponse(Response, key=62, versions="0-4", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    broker_epoch: I64 = -1
