"""Heartbeat (key 12): a member of a classic group says that it is alive."""

from semel.wire.schema import I16, I32, Request, Response, Str, field


class HeartbeatRequest(Request, key=12, versions="0-4", flexible=4):
    group_id: Str = ""
    generation_id: I32 = 0
    member_id: Str = ""
    group_instance_id: Str | None = field(default=None, since=3)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible=4):
    throttle_time_ms: I32 = field(default=0, since=1)
    error_code: I16 = 0
