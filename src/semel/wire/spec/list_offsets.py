"""ListOffsets (key 2): finds offsets by timestamp, or by the special timestamps of the log's ends."""

from semel.wire.schema import I8, I16, I32, I64, Array, Request, Response, Str, Struct, field


class ListOffsetsPartition(Struct):
    partition_index: I32 = 0
    current_leader_epoch: I32 = field(default=-1, since=4)
    timestamp: I64 = 0


class ListOffsetsTopic(Struct):
    name: Str = ""
    partitions: Array[ListOffsetsPartition] = ()


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible=6):
    replica_id: I32 = 0
    isolation_level: I8 = field(default=0, since=2)
    topics: Array[ListOffsetsTopic] = ()
    timeout_ms: I32 = field(default=0, since=10)


class ListOffsetsPartitionResponse(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0
    timestamp: I64 = -1
    offset: I64 = -1
    leader_epoch: I32 = field(default=-1, since=4)


class ListOffsetsTopicResponse(Struct):
    name: Str = ""
    partitions: Array[ListOffsetsPartitionResponse] = ()


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible=6):
    throttle_time_ms: I32 = field(default=0, since=2)
    topics: Array[ListOffsetsTopicResponse] = ()
