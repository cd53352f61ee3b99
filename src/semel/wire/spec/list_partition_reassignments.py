"""ListPartitionReassignments (key 46): the moves of replicas that are under way."""

from semel.wire.schema import I16, I32, Array, Request, Response, Str, Struct


class ListPartitionReassignmentsTopic(Struct):
    name: Str = ""
    partition_indexes: Array[I32] = ()


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible=0):
    timeout_ms: I32 = 60000
    topics: Array[ListPartitionReassignmentsTopic] | None = None


class OngoingPartitionReassignment(Struct):
    partition_index: I32 = 0
    replicas: Array[I32] = ()
    adding_replicas: Array[I32] = ()
    removing_replicas: Array[I32] = ()


class OngoingTopicReassignment(Struct):
    name: Str = ""
    partitions: Array[OngoingPartitionReassignment] = ()


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
    topics: Array[OngoingTopicReassignment] = ()
