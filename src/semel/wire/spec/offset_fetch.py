"""OffsetFetch (key 9): the offsets that a group has committed; from version 8 on for several groups at once."""

from semel.wire.schema import I16, I32, I64, NO_UUID, Array, Bool, Request, Response, Str, Struct, Uuid, field


class OffsetFetchRequestTopic(Struct):
    name: Str = ""
    partition_indexes: Array[I32] = ()


class OffsetFetchRequestGroupTopic(Struct):
    name: Str = field(default="", until=9)
    topic_id: Uuid = field(default=NO_UUID, since=10)
    partition_indexes: Array[I32] = ()


class OffsetFetchRequestGroup(Struct):
    group_id: Str = ""
    member_id: Str | None = field(default=None, since=9)
    member_epoch: I32 = field(default=-1, since=9)
    topics: Array[OffsetFetchRequestGroupTopic] | None = ()


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible=6):
    group_id: Str = field(default="", until=7)
    topics: Array[OffsetFetchRequestTopic] | None = field(default=(), until=7, nullable_since=2)
    groups: Array[OffsetFetchRequestGroup] = field(default=(), since=8)
    require_stable: Bool = field(default=False, since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: I32 = 0
    committed_offset: I64 = 0
    committed_leader_epoch: I32 = field(default=-1, since=5)
    metadata: Str | None = None
    error_code: I16 = 0


class OffsetFetchResponseTopic(Struct):
    name: Str = ""
    partitions: Array[OffsetFetchResponsePartition] = ()


class OffsetFetchResponseGroupPartition(Struct):
    partition_index: I32 = 0
    committed_offset: I64 = 0
    committed_leader_epoch: I32 = -1
    metadata: Str | None = None
    error_code: I16 = 0


class OffsetFetchResponseGroupTopic(Struct):
    name: Str = field(default="", until=9)
    topic_id: Uuid = field(default=NO_UUID, since=10)
    partitions: Array[OffsetFetchResponseGroupPartition] = ()


class OffsetFetchResponseGroup(Struct):
    group_id: Str = ""
    topics: Array[OffsetFetchResponseGroupTopic] = ()
    error_code: I16 = 0


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible=6):
    throttle_time_ms: I32 = field(default=0, since=3)
    topics: Array[OffsetFetchResponseTopic] = field(default=(), until=7)
    error_code: I16 = field(default=0, since=2, until=7)
    groups: Array[OffsetFetchResponseGroup] = field(default=(), since=8)
