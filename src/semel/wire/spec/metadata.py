"""Metadata (key 3): brokers, topics and partition leaders of the cluster; may create topics on the way."""

from semel.wire.schema import I16, I32, NO_UUID, Array, Bool, Request, Response, Str, Struct, Uuid, field


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field(default=NO_UUID, since=10)
    name: Str | None = field(default="", nullable_since=10)


class MetadataRequest(Request, key=3, versions="0-13", flexible=9):
    topics: Array[MetadataRequestTopic] | None = field(default=(), nullable_since=1)
    allow_auto_topic_creation: Bool = field(default=True, since=4)
    include_cluster_authorized_operations: Bool = field(default=False, since=8, until=10)
    include_topic_authorized_operations: Bool = field(default=False, since=8)


class MetadataResponseBroker(Struct):
    node_id: I32 = 0
    host: Str = ""
    port: I32 = 0
    rack: Str | None = field(default=None, since=1)


class MetadataResponsePartition(Struct):
    error_code: I16 = 0
    partition_index: I32 = 0
    leader_id: I32 = 0
    leader_epoch: I32 = field(default=-1, since=7)
    replica_nodes: Array[I32] = ()
    isr_nodes: Array[I32] = ()
    offline_replicas: Array[I32] = field(default=(), since=5)


class MetadataResponseTopic(Struct):
    error_code: I16 = 0
    name: Str | None = field(default="", nullable_since=12)
    topic_id: Uuid = field(default=NO_UUID, since=10)
    is_internal: Bool = field(default=False, since=1)
    partitions: Array[MetadataResponsePartition] = ()
    topic_authorized_operations: I32 = field(default=-(1 << 31), since=8)


class MetadataResponse(Response, key=3, versions="0-13", flexible=9):
    throttle_time_ms: I32 = field(default=0, since=3)
    brokers: Array[MetadataResponseBroker] = ()
    cluster_id: Str | None = field(default=None, since=2)
    controller_id: I32 = field(default=-1, since=1)
    topics: Array[MetadataResponseTopic] = ()
    cluster_authorized_operations: I32 = field(default=-(1 << 31), since=8, until=10)
    error_code: I16 = field(default=0, since=13)
