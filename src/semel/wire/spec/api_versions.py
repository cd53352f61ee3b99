"""ApiVersions (key 18): which APIs and versions a broker serves, and the features of the cluster.

Its response has the old response header in every version, so that a client can read it before it knows the broker.
From version 5 on a client may say which cluster and node it means to have reached (KIP-1242): both, or neither.
"""

from semel.wire.schema import I16, I32, I64, Array, Bool, Request, Response, Str, Struct, field


class ApiVersionsRequest(Request, key=18, versions="0-5", flexible=3):
    client_software_name: Str = field(default="", since=3)
    client_software_version: Str = field(default="", since=3)
    cluster_id: Str | None = field(default=None, since=5)
    node_id: I32 = field(default=-1, since=5)


class ApiVersion(Struct):
    api_key: I16 = 0
    min_version: I16 = 0
    max_version: I16 = 0


class SupportedFeature(Struct):
    name: Str = ""
    min_version: I16 = 0
    max_version: I16 = 0


class FinalizedFeature(Struct):
    name: Str = ""
    max_version_level: I16 = 0
    min_version_level: I16 = 0


class ApiVersionsResponse(Response, key=18, versions="0-5", flexible=3):
    error_code: I16 = 0
    api_keys: Array[ApiVersion] = ()
    throttle_time_ms: I32 = field(default=0, since=1)
    supported_features: Array[SupportedFeature] = field(default=(), since=3, tag=0)
    finalized_features_epoch: I64 = field(default=-1, since=3, tag=1)
    finalized_features: Array[FinalizedFeature] = field(default=(), since=3, tag=2)
    zk_migration_ready: Bool = field(default=False, since=3, tag=3)
