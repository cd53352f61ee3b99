"""Fetch (key 1): reads record batches from partitions, for consumers and for replicas.

From version 7 on a session remembers the partitions asked for; from 13 on topics are named by id.
"""

from semel.wire.schema import I8, I16, I32, I64, NO_UUID, Array, Records, Request, Response, Str, Struct, Uuid, field


class ReplicaState(Struct):
    replica_id: I32 = -1
    replica_epoch: I64 = -1


class FetchRequestPartition(Struct):
    partition: I32 = 0
    current_leader_epoch: I32 = field(default=-1, since=9)
    fetch_offset: I64 = 0
    last_fetched_epoch: I32 = field(default=-1, since=12)
    log_start_offset: I64 = field(default=-1, since=5)
    partition_max_bytes: I32 = 0
    replica_directory_id: Uuid = field(default=NO_UUID, since=17, tag=0)
    high_watermark: I64 = field(default=(1 << 63) - 1, since=18, tag=1)


class FetchRequestTopic(Struct):
    topic: Str = field(default="", until=12)
    topic_id: Uuid = field(default=NO_UUID, since=13)
    partitions: Array[FetchRequestPartition] = ()


class ForgottenTopic(Struct):
    topic: Str = field(default="", until=12)
    topic_id: Uuid = field(default=NO_UUID, since=13)
    partitions: Array[I32] = ()


class FetchRequest(Request, key=1, versions="4-18", flexible=12):
    cluster_id: Str | None = field(default=None, since=12, tag=0)
    replica_id: I32 = field(default=-1, until=14)
    replica_state: ReplicaState | None = field(default=None, since=15, tag=1)
    max_wait_ms: I32 = 0
    min_bytes: I32 = 0
    max_bytes: I32 = (1 << 31) - 1
    isolation_level: I8 = 0
    session_id: I32 = field(default=0, since=7)
    session_epoch: I32 = field(default=-1, since=7)
    topics: Array[FetchRequestTopic] = ()
    forgotten_topics_data: Array[ForgottenTopic] = field(default=(), since=7)
    rack_id: Str = field(default="", since=11)


class EpochEndOffset(Struct):
    epoch: I32 = -1
    end_offset: I64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: I32 = -1
    leader_epoch: I32 = -1


class SnapshotId(Struct):
    end_offset: I64 = -1
    epoch: I32 = -1


class AbortedTransaction(Struct):
    producer_id: I64 = 0
    first_offset: I64 = 0


class FetchResponsePartition(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0
    high_watermark: I64 = 0
    last_stable_offset: I64 = -1
    log_start_offset: I64 = field(default=-1, since=5)
    diverging_epoch: EpochEndOffset | None = field(default=None, since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = field(default=None, since=12, tag=1)
    snapshot_id: SnapshotId | None = field(default=None, since=12, tag=2)
    aborted_transactions: Array[AbortedTransaction] | None = ()
    preferred_read_replica: I32 = field(default=-1, since=11)
    records: Records | None = None


class FetchResponseTopic(Struct):
    topic: Str = field(default="", until=12)
    topic_id: Uuid = field(default=NO_UUID, since=13)
    partitions: Array[FetchResponsePartition] = ()


class NodeEndpoint(Struct):
    node_id: I32 = 0
    host: Str = ""
    port: I32 = 0
    rack: Str | None = None


class FetchResponse(Response, key=1, versions="4-18", flexible=12):
    throttle_time_ms: I32 = 0
    error_code: I16 = field(default=0, since=7)
    session_id: I32 = field(default=0, since=7)
    responses: Array[FetchResponseTopic] = ()
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=16, tag=0)
