"""CreateAcls (key 30): creates access rules."""

from semel.wire.schema import I8, I16, I32, Array, Request, Response, Str, Struct


class AclCreation(Struct):
    resource_type: I8 = 0
    resource_name: Str = ""
    resource_pattern_type: I8 = 3
    principal: Str = ""
    host: Str = ""
    operation: I8 = 0
    permission_type: I8 = 0


class CreateAclsRequest(Request, key=30, versions="1-3", flexible=2):
    creations: Array[AclCreation] = ()


class AclCreationResult(Struct):
    error_code: I16 = 0
    error_message: Str | None = None


class CreateAclsResponse(Response, key=30, versions="1-3", flexible=2):
    throttle_time_ms: I32 = 0
    results: Array[AclCreationResult] = ()
