"""DeleteAcls (key 31): deletes the access rules that match filters."""

from semel.wire.schema import I8, I16, I32, Array, Request, Response, Str, Struct


class DeleteAclsFilter(Struct):
    resource_type_filter: I8 = 0
    resource_name_filter: Str | None = None
    pattern_type_filter: I8 = 3
    principal_filter: Str | None = None
    host_filter: Str | None = None
    operation: I8 = 0
    permission_type: I8 = 0


class DeleteAclsRequest(Request, key=31, versions="1-3", flexible=2):
    filters: Array[DeleteAclsFilter] = ()


class DeleteAclsMatchingAcl(Struct):
    error_code: I16 = 0
    error_message: Str | None = None
    resource_type: I8 = 0
    resource_name: Str = ""
    pattern_type: I8 = 3
    principal: Str = ""
    host: Str = ""
    operation: I8 = 0
    permission_type: I8 = 0


class DeleteAclsFilterResult(Struct):
    error_code: I16 = 0
    error_message: Str | None = None
    matching_acls: Array[DeleteAclsMatchingAcl] = ()


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible=2):
    throttle_time_ms: I32 = 0
    filter_results: Array[DeleteAclsFilterResult] = ()
