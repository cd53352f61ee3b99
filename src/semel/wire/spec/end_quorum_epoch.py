"""EndQuorumEpoch (key 54): a leader of the metadata quorum resigns and names who should follow."""

from semel.wire.schema import I16, I32, NO_UUID, U16, Array, Request, Response, Str, Struct, Uuid, field


class PreferredCandidate(Struct):
    candidate_id: I32 = 0
    candidate_directory_id: Uuid = NO_UUID


class EndQuorumEpochRequestPartition(Struct):
    partition_index: I32 = 0
    leader_id: I32 = 0
    leader_epoch: I32 = 0
    preferred_successors: Array[I32] = field(default=(), until=0)
    preferred_candidates: Array[PreferredCandidate] = field(default=(), since=1)


class EndQuorumEpochRequestTopic(Struct):
    topic_name: Str = ""
    partitions: Array[EndQuorumEpochRequestPartition] = ()


class LeaderEndpoint(Struct):
    name: Str = ""
    host: Str = ""
    port: U16 = 0


class EndQuorumEpochRequest(Request, key=54, versions="0-1", flexible=1):
    cluster_id: Str | None = None
    topics: Array[EndQuorumEpochRequestTopic] = ()
    leader_endpoints: Array[LeaderEndpoint] = field(default=(), since=1)


class EndQuorumEpochResponsePartition(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0
    leader_id: I32 = 0
    leader_epoch: I32 = 0


class EndQuorumEpochResponseTopic(Struct):
    topic_name: Str = ""
    partitions: Array[EndQuorumEpochResponsePartition] = ()


class NodeEndpoint(Struct):
    node_id: I32 = 0
    host: Str = ""
    port: U16 = 0


class EndQuorumEpochResponse(Response, key=54, versions="0-1", flexible=1):
    error_code: I16 = 0
    topics: Array[EndQuorumEpochResponseTopic] = ()
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=1, tag=0)
