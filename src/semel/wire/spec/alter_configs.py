"""AlterConfigs (key 33): replaces all settings of a resource. IncrementalAlterConfigs changes single ones."""

from semel.wire.schema import I8, I16, I32, Array, Bool, Request, Response, Str, Struct


class AlterableConfig(Struct):
    name: Str = ""
    value: Str | None = None


class AlterConfigsResource(Struct):
    resource_type: I8 = 0
    resource_name: Str = ""
    configs: Array[AlterableConfig] = ()


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible=2):
    resources: Array[AlterConfigsResource] = ()
    validate_only: Bool = False


class AlterConfigsResult(Struct):
    error_code: I16 = 0
    error_message: Str | None = None
    resource_type: I8 = 0
    resource_name: Str = ""


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible=2):
    throttle_time_ms: I32 = 0
    responses: Array[AlterConfigsResult] = ()
