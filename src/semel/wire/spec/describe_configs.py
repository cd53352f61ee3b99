"""DescribeConfigs (key 32): the settings of topics, brokers and other resources."""

from semel.wire.schema import I8, I16, I32, Array, Bool, Request, Response, Str, Struct, field


class DescribeConfigsResource(Struct):
    resource_type: I8 = 0
    resource_name: Str = ""
    configuration_keys: Array[Str] | None = ()


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible=4):
    resources: Array[DescribeConfigsResource] = ()
    include_synonyms: Bool = False
    include_documentation: Bool = field(default=False, since=3)


class ConfigSynonym(Struct):
    name: Str = ""
    value: Str | None = None
    source: I8 = 0


class DescribedConfig(Struct):
    name: Str = ""
    value: Str | None = None
    read_only: Bool = False
    config_source: I8 = -1
    is_sensitive: Bool = False
    synonyms: Array[ConfigSynonym] = ()
    config_type: I8 = field(default=0, since=3)
    documentation: Str | None = field(default=None, since=3)


class DescribeConfigsResult(Struct):
    error_code: I16 = 0
    error_message: Str | None = None
    resource_type: I8 = 0
    resource_name: Str = ""
    configs: Array[DescribedConfig] = ()


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible=4):
    throttle_time_ms: I32 = 0
    results: Array[DescribeConfigsResult] = ()
