"""JoinGroup (key 11): a member joins a group of the classic protocol and waits for the others."""

from semel.wire.schema import I16, I32, Array, Bool, Bytes, Request, Response, Str, Struct, field


class JoinGroupRequestProtocol(Struct):
    name: Str = ""
    metadata: Bytes = b""


class JoinGroupRequest(Request, key=11, versions="0-9", flexible=6):
    group_id: Str = ""
    session_timeout_ms: I32 = 0
    rebalance_timeout_ms: I32 = field(default=-1, since=1)
    member_id: Str = ""
    group_instance_id: Str | None = field(default=None, since=5)
    protocol_type: Str = ""
    protocols: Array[JoinGroupRequestProtocol] = ()
    reason: Str | None = field(default=None, since=8)


class JoinGroupResponseMember(Struct):
    member_id: Str = ""
    group_instance_id: Str | None = field(default=None, since=5)
    metadata: Bytes = b""


class JoinGroupResponse(Response, key=11, versions="0-9", flexible=6):
    throttle_time_ms: I32 = field(default=0, since=2)
    error_code: I16 = 0
    generation_id: I32 = -1
    protocol_type: Str | None = field(default=None, since=7)
    protocol_name: Str | None = field(default="", nullable_since=7)
    leader: Str = ""
    skip_assignment: Bool = field(default=False, since=9)
    member_id: Str = ""
    members: Array[JoinGroupResponseMember] = ()
