"""DescribeAcls (key 29): the access rules that match a filter."""

from semel.wire.schema import I8, I16, I32, Array, Request, Response, Str, Struct


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible=2):
    resource_type_filter: I8 = 0
    resource_name_filter: Str | None = None
    pattern_type_filter: I8 = 3
    principal_filter: Str | None = None
    host_filter: Str | None = None
    operation: I8 = 0
    permission_type: I8 = 0


class AclDescription(Struct):
    principal: Str = ""
    host: Str = ""
    operation: I8 = 0
    permission_type: I8 = 0


class DescribeAclsResource(Struct):
    resource_type: I8 = 0
    resource_name: Str = ""
    pattern_type: I8 = 3
    acls: Array[AclDescription] = ()


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible=2):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
    resources: Array[DescribeAclsResource] = ()
