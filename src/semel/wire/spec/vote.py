"""Vote (key 52): a candidate of the metadata quorum asks for a vote, from version 2 on also for a pre-vote."""

from semel.wire.schema import I16, I32, I64, NO_UUID, U16, Array, Bool, Request, Response, Str, Struct, Uuid, field


class VoteRequestPartition(Struct):
    partition_index: I32 = 0
    replica_epoch: I32 = 0
    replica_id: I32 = 0
    replica_directory_id: Uuid = field(default=NO_UUID, since=1)
    voter_directory_id: Uuid = field(default=NO_UUID, since=1)
    last_offset_epoch: I32 = 0
    last_offset: I64 = 0
    pre_vote: Bool = field(default=False, since=2)


class VoteRequestTopic(Struct):
    topic_name: Str = ""
    partitions: Array[VoteRequestPartition] = ()


class VoteRequest(Request, key=52, versions="0-2", flexible=0):
    cluster_id: Str | None = None
    voter_id: I32 = field(default=-1, since=1)
    topics: Array[VoteRequestTopic] = ()


class VoteResponsePartition(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0
    leader_id: I32 = 0
    leader_epoch: I32 = 0
    vote_granted: Bool = False


class VoteResponseTopic(Struct):
    topic_name: Str = ""
    partitions: Array[VoteResponsePartition] = ()


class NodeEndpoint(Struct):
    node_id: I32 = 0
    host: Str = ""
    port: U16 = 0


class VoteResponse(Response, key=52, versions="0-2", flexible=0):
    error_code: I16 = 0
    topics: Array[VoteResponseTopic] = ()
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=1, tag=0)
