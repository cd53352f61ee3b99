"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, by which a reader finds where logs diverged."""

from semel.wire.schema import I16, I32, I64, Array, Request, Response, Str, Struct, field


class OffsetForLeaderPartition(Struct):
    partition: I32 = 0
    current_leader_epoch: I32 = -1
    leader_epoch: I32 = 0


class OffsetForLeaderTopic(Struct):
    topic: Str = ""
    partitions: Array[OffsetForLeaderPartition] = ()


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible=4):
    replica_id: I32 = field(default=-2, since=3)
    topics: Array[OffsetForLeaderTopic] = ()


class EpochEndOffset(Struct):
    error_code: I16 = 0
    partition: I32 = 0
    leader_epoch: I32 = -1
    end_offset: I64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: Str = ""
    partitions: Array[EpochEndOffset] = ()


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible=4):
    throttle_time_ms: I32 = 0
    topics: Array[OffsetForLeaderTopicResult] = ()
