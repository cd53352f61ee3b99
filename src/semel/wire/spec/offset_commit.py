"""OffsetCommit (key 8): stores the offsets up to which a group has read."""

from semel.wire.schema import I16, I32, I64, NO_UUID, Array, Request, Response, Str, Struct, Uuid, field


class OffsetCommitRequestPartition(Struct):
    partition_index: I32 = 0
    committed_offset: I64 = 0
    committed_leader_epoch: I32 = field(default=-1, since=6)
    committed_metadata: Str | None = None


class OffsetCommitRequestTopic(Struct):
    name: Str = field(default="", until=9)
    topic_id: Uuid = field(default=NO_UUID, since=10)
    partitions: Array[OffsetCommitRequestPartition] = ()


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible=8):
    group_id: Str = ""
    generation_id_or_member_epoch: I32 = -1
    member_id: Str = ""
    group_instance_id: Str | None = field(default=None, since=7)
    retention_time_ms: I64 = field(default=-1, until=4)
    topics: Array[OffsetCommitRequestTopic] = ()


class OffsetCommitResponsePartition(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0


class OffsetCommitResponseTopic(Struct):
    name: Str = field(default="", until=9)
    topic_id: Uuid = field(default=NO_UUID, since=10)
    partitions: Array[OffsetCommitResponsePartition] = ()


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible=8):
    throttle_time_ms: I32 = field(default=0, since=3)
    topics: Array[OffsetCommitResponseTopic] = ()
