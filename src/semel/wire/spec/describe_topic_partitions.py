"""DescribeTopicPartitions (key 75): the partitions of topics, page by page."""

from semel.wire.schema import I16, I32, NO_UUID, Array, Bool, Request, Response, Str, Struct, Uuid


class DescribeTopicPartitionsRequestTopic(Struct):
    name: Str = ""


class Cursor(Struct):
    topic_name: Str = ""
    partition_index: I32 = 0


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible=0):
    topics: Array[DescribeTopicPartitionsRequestTopic] = ()
    response_partition_limit: I32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: I16 = 0
    partition_index: I32 = 0
    leader_id: I32 = 0
    leader_epoch: I32 = -1
    replica_nodes: Array[I32] = ()
    isr_nodes: Array[I32] = ()
    eligible_leader_replicas: Array[I32] | None = None
    last_known_elr: Array[I32] | None = None
    offline_replicas: Array[I32] = ()


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: I16 = 0
    name: Str | None = None
    topic_id: Uuid = NO_UUID
    is_internal: Bool = False
    partitions: Array[DescribeTopicPartitionsResponsePartition] = ()
    topic_authorized_operations: I32 = -(1 << 31)


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    topics: Array[DescribeTopicPartitionsResponseTopic] = ()
    next_cursor: Cursor | None = None
