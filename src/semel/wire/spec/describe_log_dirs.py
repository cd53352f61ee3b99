"""DescribeLogDirs (key 35): the directories of a broker, and how much each partition takes in them."""

from semel.wire.schema import I16, I32, I64, Array, Bool, Request, Response, Str, Struct, field


class DescribeLogDirsRequestTopic(Struct):
    topic: Str = ""
    partitions: Array[I32] = ()


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible=2):
    topics: Array[DescribeLogDirsRequestTopic] | None = ()


class LogDirPartition(Struct):
    partition_index: I32 = 0
    partition_size: I64 = 0
    offset_lag: I64 = 0
    is_future_key: Bool = False


class LogDirTopic(Struct):
    name: Str = ""
    partitions: Array[LogDirPartition] = ()


class LogDirDescription(Struct):
    error_code: I16 = 0
    log_dir: Str = ""
    topics: Array[LogDirTopic] = ()
    total_bytes: I64 = field(default=-1, since=4)
    usable_bytes: I64 = field(default=-1, since=4)
    is_cordoned: Bool = field(default=False, since=5)


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible=2):
    throttle_time_ms: I32 = 0
    error_code: I16 = field(default=0, since=3)
    results: Array[LogDirDescription] = ()
