"""DescribeGroups (key 15): state and members of groups of the classic protocol."""

from semel.wire.schema import I16, I32, Array, Bool, Bytes, Request, Response, Str, Struct, field


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible=5):
    groups: Array[Str] = ()
    include_authorized_operations: Bool = field(default=False, since=3)


class DescribedGroupMember(Struct):
    member_id: Str = ""
    group_instance_id: Str | None = field(default=None, since=4)
    client_id: Str = ""
    client_host: Str = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Struct):
    error_code: I16 = 0
    error_message: Str | None = field(default=None, since=6)
    group_id: Str = ""
    group_state: Str = ""
    protocol_type: Str = ""
    protocol_data: Str = ""
    members: Array[DescribedGroupMember] = ()
    authorized_operations: I32 = field(default=-(1 << 31), since=3)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible=5):
    throttle_time_ms: I32 = field(default=0, since=1)
    groups: Array[DescribedGroup] = ()
