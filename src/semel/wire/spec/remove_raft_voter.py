"""RemoveRaftVoter (key 81): a controller is no voter of the quorum any more (KIP-853)."""

from semel.wire.schema import I16, I32, NO_UUID, Request, Response, Str, Uuid


class RemoveRaftVoterRequest(Request, key=81, versions="0", flexible=0):
    cluster_id: Str | None = ""
    voter_id: I32 = 0
    voter_directory_id: Uuid = NO_UUID


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
