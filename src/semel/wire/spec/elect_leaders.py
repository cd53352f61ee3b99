"""ElectLeaders (key 43): asks for the election of partition leaders."""

from semel.wire.schema import I8, I16, I32, Array, Request, Response, Str, Struct, field


class ElectLeadersTopic(Struct):
    topic: Str = ""
    partitions: Array[I32] = ()


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible=2):
    election_type: I8 = field(default=0, since=1)
    topic_partitions: Array[ElectLeadersTopic] | None = ()
    timeout_ms: I32 = 60000


class ElectLeadersPartitionResult(Struct):
    partition_id: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None


class ElectLeadersTopicResult(Struct):
    topic: Str = ""
    partition_result: Array[ElectLeadersPartitionResult] = ()


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible=2):
    throttle_time_ms: I32 = 0
    error_code: I16 = field(default=0, since=1)
    replica_election_results: Array[ElectLeadersTopicResult] = ()
