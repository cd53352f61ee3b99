"""OffsetDelete (key 47): deletes committed offsets of a group. Never flexible."""

from semel.wire.schema import I16, I32, Array, Request, Response, Str, Struct


class OffsetDeleteRequestPartition(Struct):
    partition_index: I32 = 0


class OffsetDeleteRequestTopic(Struct):
    name: Str = ""
    partitions: Array[OffsetDeleteRequestPartition] = ()


class OffsetDeleteRequest(Request, key=47, versions="0"):
    group_id: Str = ""
    topics: Array[OffsetDeleteRequestTopic] = ()


class OffsetDeleteResponsePartition(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0


class OffsetDeleteResponseTopic(Struct):
    name: Str = ""
    partitions: Array[OffsetDeleteResponsePartition] = ()


class OffsetDeleteResponse(Response, key=47, versions="0"):
    error_code: I16 = 0
    throttle_time_ms: I32 = 0
    topics: Array[OffsetDeleteResponseTopic] = ()
