"""AlterPartitionReassignments (key 45): moves replicas of partitions to other brokers, or calls a move off."""

from semel.wire.schema import I16, I32, Array, Bool, Request, Response, Str, Struct, field


class ReassignablePartition(Struct):
    partition_index: I32 = 0
    replicas: Array[I32] | None = None


class ReassignableTopic(Struct):
    name: Str = ""
    partitions: Array[ReassignablePartition] = ()


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible=0):
    timeout_ms: I32 = 60000
    allow_replication_factor_change: Bool = field(default=True, since=1)
    topics: Array[ReassignableTopic] = ()


class ReassignablePartitionResponse(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None


class ReassignableTopicResponse(Struct):
    name: Str = ""
    partitions: Array[ReassignablePartitionResponse] = ()


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible=0):
    throttle_time_ms: I32 = 0
    allow_replication_factor_change: Bool = field(default=True, since=1)
    error_code: I16 = 0
    error_message: Str | None = None
    responses: Array[ReassignableTopicResponse] = ()
