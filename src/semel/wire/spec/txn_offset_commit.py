"""TxnOffsetCommit (key 28): stores a group's offsets as part of a transaction.

From version 6 on topics are named by id (KIP-1319).
"""

from semel.wire.schema import I16, I32, I64, NO_UUID, Array, Request, Response, Str, Struct, Uuid, field


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: I32 = 0
    committed_offset: I64 = 0
    committed_leader_epoch: I32 = field(default=-1, since=2)
    committed_metadata: Str | None = None


class TxnOffsetCommitRequestTopic(Struct):
    name: Str = field(default="", until=5)
    topic_id: Uuid = field(default=NO_UUID, since=6)
    partitions: Array[TxnOffsetCommitRequestPartition] = ()


class TxnOffsetCommitRequest(Request, key=28, versions="0-6", flexible=3):
    transactional_id: Str = ""
    group_id: Str = ""
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    generation_id: I32 = field(default=-1, since=3)
    member_id: Str = field(default="", since=3)
    group_instance_id: Str | None = field(default=None, since=3)
    topics: Array[TxnOffsetCommitRequestTopic] = ()


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: Str = field(default="", until=5)
    topic_id: Uuid = field(default=NO_UUID, since=6)
    partitions: Array[TxnOffsetCommitResponsePartition] = ()


class TxnOffsetCommitResponse(Response, key=28, versions="0-6", flexible=3):
    throttle_time_ms: I32 = 0
    topics: Array[TxnOffsetCommitResponseTopic] = ()
