"""ConsumerGroupDescribe (key 69): state, members and assignments of KIP-848 groups."""

from semel.wire.schema import I8, I16, I32, NO_UUID, Array, Bool, Request, Response, Str, Struct, Uuid, field


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible=0):
    group_ids: Array[Str] = ()
    include_authorized_operations: Bool = False


class AssignedTopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    topic_name: Str = ""
    partitions: Array[I32] = ()


class MemberAssignment(Struct):
    topic_partitions: Array[AssignedTopicPartitions] = ()


class ConsumerGroupMember(Struct):
    member_id: Str = ""
    instance_id: Str | None = None
    rack_id: Str | None = None
    member_epoch: I32 = 0
    client_id: Str = ""
    client_host: Str = ""
    subscribed_topic_names: Array[Str] = ()
    subscribed_topic_regex: Str | None = None
    assignment: MemberAssignment = field(default_factory=MemberAssignment)
    target_assignment: MemberAssignment = field(default_factory=MemberAssignment)
    member_type: I8 = field(default=-1, since=1)


class DescribedConsumerGroup(Struct):
    error_code: I16 = 0
    error_message: Str | None = None
    group_id: Str = ""
    group_state: Str = ""
    group_epoch: I32 = 0
    assignment_epoch: I32 = 0
    assignor_name: Str = ""
    members: Array[ConsumerGroupMember] = ()
    authorized_operations: I32 = -(1 << 31)


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible=0):
    throttle_time_ms: I32 = 0
    groups: Array[DescribedConsumerGroup] = ()
