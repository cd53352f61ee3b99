"""CreatePartitions (key 37): raises the number of partitions of topics."""

from semel.wire.schema import I16, I32, Array, Bool, Request, Response, Str, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: Array[I32] = ()


class CreatePartitionsTopic(Struct):
    name: Str = ""
    count: I32 = 0
    assignments: Array[CreatePartitionsAssignment] | None = ()


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible=2):
    topics: Array[CreatePartitionsTopic] = ()
    timeout_ms: I32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    name: Str = ""
    error_code: I16 = 0
    error_message: Str | None = None


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible=2):
    throttle_time_ms: I32 = 0
    results: Array[CreatePartitionsTopicResult] = ()
