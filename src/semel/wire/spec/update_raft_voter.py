"""UpdateRaftVoter (key 82): a voter tells the leader of its endpoints and versions when they have changed (KIP-853)."""

from semel.wire.schema import I16, I32, NO_UUID, U16, Array, Request, Response, Str, Struct, Uuid, field


class UpdatedVoterListener(Struct):
    name: Str = ""
    host: Str = ""
    port: U16 = 0


class KRaftVersionFeature(Struct):
    min_supported_version: I16 = 0
    max_supported_version: I16 = 0


class UpdateRaftVoterRequest(Request, key=82, versions="0", flexible=0):
    cluster_id: Str | None = ""
    current_leader_epoch: I32 = 0
    voter_id: I32 = 0
    voter_directory_id: Uuid = NO_UUID
    listeners: Array[UpdatedVoterListener] = ()
    k_raft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


class QuorumLeader(Struct):
    leader_id: I32 = -1
    leader_epoch: I32 = -1
    host: Str = ""
    port: I32 = 0


class UpdateRaftVoterResponse(Response, key=82, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    current_leader: QuorumLeader = field(default=QuorumLeader(), tag=0)
