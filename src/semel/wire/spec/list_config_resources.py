"""ListConfigResources (key 74): the resources that have settings of their own. Version 0 knew client metrics only."""

from semel.wire.schema import I8, I16, I32, Array, Request, Response, Str, Struct, field


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible=0):
    resource_types: Array[I8] = field(default=(), since=1)


class ConfigResource(Struct):
    resource_name: Str = ""
    resource_type: I8 = field(default=16, since=1)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    config_resources: Array[ConfigResource] = ()
