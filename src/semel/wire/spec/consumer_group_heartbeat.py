"""ConsumerGroupHeartbeat (key 68): a member of a KIP-848 group joins, stays, leaves, and learns its assignment."""

from semel.wire.schema import I16, I32, NO_UUID, Array, Request, Response, Str, Struct, Uuid, field


class OwnedTopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    partitions: Array[I32] = ()


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible=0):
    group_id: Str = ""
    member_id: Str = ""
    member_epoch: I32 = 0
    instance_id: Str | None = None
    rack_id: Str | None = None
    rebalance_timeout_ms: I32 = -1
    subscribed_topic_names: Array[Str] | None = None
    subscribed_topic_regex: Str | None = field(default=None, since=1)
    server_assignor: Str | None = None
    topic_partitions: Array[OwnedTopicPartitions] | None = None


class AssignedTopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    partitions: Array[I32] = ()


class MemberAssignment(Struct):
    topic_partitions: Array[AssignedTopicPartitions] = ()


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
    member_id: Str | None = None
    member_epoch: I32 = 0
    heartbeat_interval_ms: I32 = 0
    assignment: MemberAssignment | None = None
