"""ListGroups (key 16): the groups that a broker coordinates."""

from semel.wire.schema import I16, I32, Array, Request, Response, Str, Struct, field


class ListGroupsRequest(Request, key=16, versions="0-5", flexible=3):
    states_filter: Array[Str] = field(default=(), since=4)
    types_filter: Array[Str] = field(default=(), since=5)


class ListedGroup(Struct):
    group_id: Str = ""
    protocol_type: Str = ""
    group_state: Str = field(default="", since=4)
    group_type: Str = field(default="", since=5)


class ListGroupsResponse(Response, key=16, versions="0-5", flexible=3):
    throttle_time_ms: I32 = field(default=0, since=1)
    error_code: I16 = 0
    groups: Array[ListedGroup] = ()
