"""BeginQuorumEpoch (key 53): a new leader of the metadata quorum makes itself known to the voters."""

from semel.wire.schema import I16, I32, NO_UUID, U16, Array, Request, Response, Str, Struct, Uuid, field


class BeginQuorumEpochRequestPartition(Struct):
    partition_index: I32 = 0
    voter_directory_id: Uuid = field(default=NO_UUID, since=1)
    leader_id: I32 = 0
    leader_epoch: I32 = 0


class BeginQuorumEpochRequestTopic(Struct):
    topic_name: Str = ""
    partitions: Array[BeginQuorumEpochRequestPartition] = ()


class LeaderEndpoint(Struct):
    name: Str = ""
    host: Str = ""
    port: U16 = 0


class BeginQuorumEpochRequest(Request, key=53, versions="0-1", flexible=1):
    cluster_id: Str | None = None
    voter_id: I32 = field(default=-1, since=1)
    topics: Array[BeginQuorumEpochRequestTopic] = ()
    leader_endpoints: Array[LeaderEndpoint] = field(default=(), since=1)


class BeginQuorumEpochResponsePartition(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0
    leader_id: I32 = 0
    leader_epoch: I32 = 0


class BeginQuorumEpochResponseTopic(Struct):
    topic_name: Str = ""
    partitions: Array[BeginQuorumEpochResponsePartition] = ()


class NodeEndpoint(Struct):
    node_id: I32 = 0
    host: Str = ""
    port: U16 = 0


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible=1):
    error_code: I16 = 0
    topics: Array[BeginQuorumEpochResponseTopic] = ()
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=1, tag=0)
