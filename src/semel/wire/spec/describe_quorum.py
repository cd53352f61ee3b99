"""DescribeQuorum (key 55): leader, voters and observers of the metadata quorum."""

from semel.wire.schema import I16, I32, I64, NO_UUID, U16, Array, Request, Response, Str, Struct, Uuid, field


class DescribeQuorumRequestPartition(Struct):
    partition_index: I32 = 0


class DescribeQuorumRequestTopic(Struct):
    topic_name: Str = ""
    partitions: Array[DescribeQuorumRequestPartition] = ()


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible=0):
    topics: Array[DescribeQuorumRequestTopic] = ()


class QuorumReplica(Struct):
    replica_id: I32 = 0
    replica_directory_id: Uuid = field(default=NO_UUID, since=2)
    log_end_offset: I64 = 0
    last_fetch_timestamp: I64 = field(default=-1, since=1)
    last_caught_up_timestamp: I64 = field(default=-1, since=1)


class DescribeQuorumResponsePartition(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = field(default=None, since=2)
    leader_id: I32 = 0
    leader_epoch: I32 = 0
    high_watermark: I64 = 0
    current_voters: Array[QuorumReplica] = ()
    observers: Array[QuorumReplica] = ()


class DescribeQuorumResponseTopic(Struct):
    topic_name: Str = ""
    partitions: Array[DescribeQuorumResponsePartition] = ()


class QuorumListener(Struct):
    name: Str = ""
    host: Str = ""
    port: U16 = 0


class QuorumNode(Struct):
    node_id: I32 = 0
    listeners: Array[QuorumListener] = ()


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible=0):
    error_code: I16 = 0
    error_message: Str | None = field(default=None, since=2)
    topics: Array[DescribeQuorumResponseTopic] = ()
    nodes: Array[QuorumNode] = field(default=(), since=2)
