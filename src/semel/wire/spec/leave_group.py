"""LeaveGroup (key 13): members leave a group of the classic protocol."""

from semel.wire.schema import I16, I32, Array, Request, Response, Str, Struct, field


class LeavingMember(Struct):
    member_id: Str = ""
    group_instance_id: Str | None = None
    reason: Str | None = field(default=None, since=5)


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible=4):
    group_id: Str = ""
    member_id: Str = field(default="", until=2)
    members: Array[LeavingMember] = field(default=(), since=3)


class LeavingMemberResult(Struct):
    member_id: Str = ""
    group_instance_id: Str | None = None
    error_code: I16 = 0


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible=4):
    throttle_time_ms: I32 = field(default=0, since=1)
    error_code: I16 = 0
    members: Array[LeavingMemberResult] = field(default=(), since=3)
