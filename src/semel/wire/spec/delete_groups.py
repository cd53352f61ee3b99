"""DeleteGroups (key 42): deletes groups that have no members."""

from semel.wire.schema import I16, I32, Array, Request, Response, Str, Struct, field


class DeleteGroupsRequest(Request, key=42, versions="0-3", flexible=2):
    groups_names: Array[Str] = ()


class DeletableGroupResult(Struct):
    group_id: Str = ""
    error_code: I16 = 0
    error_message: Str | None = field(default=None, since=3)


class DeleteGroupsResponse(Response, key=42, versions="0-3", flexible=2):
    throttle_time_ms: I32 = 0
    results: Array[DeletableGroupResult] = ()
