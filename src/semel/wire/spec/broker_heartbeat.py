"""BrokerHeartbeat (key 63): a broker says that it is alive, how far it has read, and whether it wants to stop."""

from semel.wire.schema import I16, I32, I64, Array, Bool, Request, Response, Uuid, field


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible=0):
    broker_id: I32 = 0
    broker_epoch: I64 = -1
    current_metadata_offset: I64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: Array[Uuid] = field(default=(), since=1, tag=0)
    cordoned_log_dirs: Array[Uuid] | None = field(default=None, since=2, tag=1)


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
