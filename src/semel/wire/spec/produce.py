"""Produce (key 0): writes record batches to partitions.

From version 12 on a transactional produce adds its partitions to the transaction by itself; from 13 on topics are
named by id. A request with `acks` 0 gets no answer.
"""

from semel.wire.schema import I16, I32, I64, NO_UUID, Array, Records, Request, Response, Str, Struct, Uuid, field


class PartitionProduceData(Struct):
    index: I32 = 0
    records: Records | None = None


class TopicProduceData(Struct):
    name: Str = field(default="", until=12)
    topic_id: Uuid = field(default=NO_UUID, since=13)
    partition_data: Array[PartitionProduceData] = ()


class ProduceRequest(Request, key=0, versions="3-13", flexible=9):
    transactional_id: Str | None = None
    acks: I16 = 0
    timeout_ms: I32 = 0
    topic_data: Array[TopicProduceData] = ()


class RecordError(Struct):
    batch_index: I32 = 0
    batch_index_error_message: Str | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: I32 = -1
    leader_epoch: I32 = -1


class PartitionProduceResponse(Struct):
    index: I32 = 0
    error_code: I16 = 0
    base_offset: I64 = 0
    log_append_time_ms: I64 = -1
    log_start_offset: I64 = field(default=-1, since=5)
    record_errors: Array[RecordError] = field(default=(), since=8)
    error_message: Str | None = field(default=None, since=8)
    current_leader: LeaderIdAndEpoch | None = field(default=None, since=10, tag=0)


class TopicProduceResponse(Struct):
    name: Str = field(default="", until=12)
    topic_id: Uuid = field(default=NO_UUID, since=13)
    partition_responses: Array[PartitionProduceResponse] = ()


class NodeEndpoint(Struct):
    node_id: I32 = 0
    host: Str = ""
    port: I32 = 0
    rack: Str | None = None


class ProduceResponse(Response, key=0, versions="3-13", flexible=9):
    responses: Array[TopicProduceResponse] = ()
    throttle_time_ms: I32 = 0
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=10, tag=0)
