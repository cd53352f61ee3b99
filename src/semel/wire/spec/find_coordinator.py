"""FindCoordinator (key 10): who coordinates a group or transactional id; from version 4 on several at once."""

from semel.wire.schema import I8, I16, I32, Array, Request, Response, Str, Struct, field


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible=3):
    key: Str = field(default="", until=3)
    key_type: I8 = field(default=0, since=1)
    coordinator_keys: Array[Str] = field(default=(), since=4)


class Coordinator(Struct):
    key: Str = ""
    node_id: I32 = 0
    host: Str = ""
    port: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible=3):
    throttle_time_ms: I32 = field(default=0, since=1)
    error_code: I16 = field(default=0, until=3)
    error_message: Str | None = field(default=None, since=1, until=3)
    node_id: I32 = field(default=0, until=3)
    host: Str = field(default="", until=3)
    port: I32 = field(default=0, until=3)
    coordinators: Array[Coordinator] = field(default=(), since=4)
