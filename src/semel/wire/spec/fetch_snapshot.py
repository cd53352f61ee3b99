"""FetchSnapshot (key 59): reads a piece of a snapshot of the metadata log."""

from semel.wire.schema import I16, I32, I64, NO_UUID, U16, Array, Records, Request, Response, Str, Struct, Uuid, field


class SnapshotId(Struct):
    end_offset: I64 = 0
    epoch: I32 = 0


class FetchSnapshotRequestPartition(Struct):
    partition: I32 = 0
    current_leader_epoch: I32 = 0
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    position: I64 = 0
    replica_directory_id: Uuid = field(default=NO_UUID, since=1, tag=0)


class FetchSnapshotRequestTopic(Struct):
    name: Str = ""
    partitions: Array[FetchSnapshotRequestPartition] = ()


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible=0):
    cluster_id: Str | None = field(default=None, tag=0)
    replica_id: I32 = -1
    max_bytes: I32 = (1 << 31) - 1
    topics: Array[FetchSnapshotRequestTopic] = ()


class LeaderIdAndEpoch(Struct):
    leader_id: I32 = 0
    leader_epoch: I32 = 0


class FetchSnapshotResponsePartition(Struct):
    index: I32 = 0
    error_code: I16 = 0
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    current_leader: LeaderIdAndEpoch | None = field(default=None, tag=0)
    size: I64 = 0
    position: I64 = 0
    unaligned_records: Records = b""


class FetchSnapshotResponseTopic(Struct):
    name: Str = ""
    partitions: Array[FetchSnapshotResponsePartition] = ()


class NodeEndpoint(Struct):
    node_id: I32 = 0
    host: Str = ""
    port: U16 = 0


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    topics: Array[FetchSnapshotResponseTopic] = ()
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=1, tag=0)
