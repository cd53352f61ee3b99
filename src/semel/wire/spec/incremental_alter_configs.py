"""IncrementalAlterConfigs (key 44): sets, deletes or edits single settings of resources."""

from semel.wire.schema import I8, I16, I32, Array, Bool, Request, Response, Str, Struct


class ConfigAlteration(Struct):
    name: Str = ""
    config_operation: I8 = 0
    value: Str | None = None


class IncrementalAlterConfigsResource(Struct):
    resource_type: I8 = 0
    resource_name: Str = ""
    configs: Array[ConfigAlteration] = ()


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible=1):
    resources: Array[IncrementalAlterConfigsResource] = ()
    validate_only: Bool = False


class IncrementalAlterConfigsResult(Struct):
    error_code: I16 = 0
    error_message: Str | None = None
    resource_type: I8 = 0
    resource_name: Str = ""


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible=1):
    throttle_time_ms: I32 = 0
    responses: Array[IncrementalAlterConfigsResult] = ()
