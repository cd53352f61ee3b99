"""CreateTopics (key 19): creates topics."""

from semel.wire.schema import I8, I16, I32, NO_UUID, Array, Bool, Request, Response, Str, Struct, Uuid, field


class CreatableReplicaAssignment(Struct):
    partition_index: I32 = 0
    broker_ids: Array[I32] = ()


class CreatableTopicConfig(Struct):
    name: Str = ""
    value: Str | None = None


class CreatableTopic(Struct):
    name: Str = ""
    num_partitions: I32 = 0
    replication_factor: I16 = 0
    assignments: Array[CreatableReplicaAssignment] = ()
    configs: Array[CreatableTopicConfig] = ()


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible=5):
    topics: Array[CreatableTopic] = ()
    timeout_ms: I32 = 60000
    validate_only: Bool = False


class CreatedTopicConfig(Struct):
    name: Str = ""
    value: Str | None = None
    read_only: Bool = False
    config_source: I8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    name: Str = ""
    topic_id: Uuid = field(default=NO_UUID, since=7)
    error_code: I16 = 0
    error_message: Str | None = None
    topic_config_error_code: I16 = field(default=0, since=5, tag=0)
    num_partitions: I32 = field(default=-1, since=5)
    replication_factor: I16 = field(default=-1, since=5)
    configs: Array[CreatedTopicConfig] | None = field(default=(), since=5)


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible=5):
    throttle_time_ms: I32 = 0
    topics: Array[CreatableTopicResult] = ()
