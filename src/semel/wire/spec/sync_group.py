"""SyncGroup (key 14): the leader of a classic group hands out the assignment, the others fetch theirs."""

from semel.wire.schema import I16, I32, Array, Bytes, Request, Response, Str, Struct, field


class SyncGroupRequestAssignment(Struct):
    member_id: Str = ""
    assignment: Bytes = b""


class SyncGroupRequest(Request, key=14, versions="0-5", flexible=4):
    group_id: Str = ""
    generation_id: I32 = 0
    member_id: Str = ""
    group_instance_id: Str | None = field(default=None, since=3)
    protocol_type: Str | None = field(default=None, since=5)
    protocol_name: Str | None = field(default=None, since=5)
    assignments: Array[SyncGroupRequestAssignment] = ()


class SyncGroupResponse(Response, key=14, versions="0-5", flexible=4):
    throttle_time_ms: I32 = field(default=0, since=1)
    error_code: I16 = 0
    protocol_type: Str | None = field(default=None, since=5)
    protocol_name: Str | None = field(default=None, since=5)
    assignment: Bytes = b""
