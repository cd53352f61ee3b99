"""AddRaftVoter (key 80): a controller becomes a voter of the quorum (KIP-853). Version 1 may be answered early."""

from semel.wire.schema import I16, I32, NO_UUID, U16, Array, Bool, Request, Response, Str, Struct, Uuid, field


class VoterListener(Struct):
    name: Str = ""
    host: Str = ""
    port: U16 = 0


class AddRaftVoterRequest(Request, key=80, versions="0-1", flexible=0):
    cluster_id: Str | None = ""
    timeout_ms: I32 = 0
    voter_id: I32 = 0
    voter_directory_id: Uuid = NO_UUID
    listeners: Array[VoterListener] = ()
    ack_when_committed: Bool = field(default=True, since=1)


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
