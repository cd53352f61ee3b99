"""The records of `__consumer_offsets`: committed offsets, groups of the classic protocol, groups of KIP-848.

A key begins with an int16 that says what it is about, a value with the int16 of its version. Keys of a kind that is not
known here, which a newer coordinator may have written, read as None.
"""

from struct import Struct as Packed

from semel.wire.codec import decoder, encode
from semel.wire.errors import WireError
from semel.wire.schema import I8, I32, I64, NO_UUID, Array, Bytes, Message, Str, Struct, Uuid, field

_VERSION = Packed(">h")


class OffsetCommitKey(Message, versions="0-1"):
    group: Str = ""
    topic: Str = ""
    partition: I32 = 0


class OffsetCommitValue(Message, versions="0-4", flexible=4):
    """Version 1 alone carries an expiry of its own; it is written when a client asked for one."""

    offset: I64 = 0
    leader_epoch: I32 = field(default=-1, since=3)
    metadata: Str = ""
    commit_timestamp: I64 = 0
    expire_timestamp: I64 = field(default=-1, since=1, until=1)
    topic_id: Uuid = field(default=NO_UUID, since=4, tag=0)


class GroupMetadataKey(Message, versions="2"):
    group: Str = ""


class GroupMember(Struct):
    member_id: Str = ""
    group_instance_id: Str | None = field(default=None, since=3)
    client_id: Str = ""
    client_host: Str = ""
    rebalance_timeout: I32 = field(default=-1, since=1)
    session_timeout: I32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Message, versions="0-4", flexible=4):
    """A group of the classic protocol as its last rebalance left it."""

    protocol_type: Str = ""
    generation: I32 = 0
    protocol: Str | None = None
    leader: Str | None = None
    current_state_timestamp: I64 = field(default=-1, since=2)
    members: Array[GroupMember] = ()


class ConsumerGroupMetadataKey(Message, versions="3"):
    group_id: Str = ""


class ConsumerGroupMetadataValue(Message, versions="0", flexible=0):
    epoch: I32 = 0


class ConsumerGroupPartitionMetadataKey(Message, versions="4"):
    group_id: Str = ""


class PartitionRacks(Struct):
    partition: I32 = 0
    racks: Array[Str] = ()


class SubscribedTopic(Struct):
    topic_id: Uuid = NO_UUID
    topic_name: Str = ""
    num_partitions: I32 = 0
    partition_metadata: Array[PartitionRacks] = ()


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible=0):
    """The topics that the group is subscribed to and that were there when its epoch was bumped last."""

    topics: Array[SubscribedTopic] = ()


class ConsumerGroupMemberMetadataKey(Message, versions="5"):
    group_id: Str = ""
    member_id: Str = ""


class ClassicProtocol(Struct):
    name: Str = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: I32 = 0
    supported_protocols: Array[ClassicProtocol] = ()


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible=0):
    instance_id: Str | None = None
    rack_id: Str | None = None
    client_id: Str = ""
    client_host: Str = ""
    subscribed_topic_names: Array[Str] = ()
    subscribed_topic_regex: Str | None = None
    rebalance_timeout_ms: I32 = -1
    server_assignor: Str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = field(default=None, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6"):
    group_id: Str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible=0):
    assignment_epoch: I32 = 0


class TopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    partitions: Array[I32] = ()


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7"):
    group_id: Str = ""
    member_id: Str = ""


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible=0):
    topic_partitions: Array[TopicPartitions] = ()


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8"):
    group_id: Str = ""
    member_id: Str = ""


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible=0):
    member_epoch: I32 = 0
    previous_member_epoch: I32 = 0
    state: I8 = 0
    assigned_partitions: Array[TopicPartitions] = ()
    partitions_pending_revocation: Array[TopicPartitions] = ()


class ConsumerGroupRegularExpressionKey(Message, versions="16"):
    group_id: Str = ""
    regular_expression: Str = ""


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible=0):
    """The topics that matched a subscribed pattern, and the version of the metadata in which they did."""

    topics: Array[Str] = ()
    version: I64 = 0
    timestamp: I64 = 0


_KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
_OFFSET_VERSION, _OFFSET_WITH_EXPIRY_VERSION, _GROUP_VERSION = 3, 1, 3


def key_bytes(key: Message) -> bytes:
    return _VERSION.pack(key.max_version) + encode(key, key.max_version)


def value_bytes(value: Message) -> bytes:
    """In the version that every Kafka since 2.3 can read."""
    version = 0
    if isinstance(value, OffsetCommitValue):
        version = _OFFSET_VERSION if value.expire_timestamp < 0 else _OFFSET_WITH_EXPIRY_VERSION
    elif isinstance(value, GroupMetadataValue):
        version = _GROUP_VERSION
    return _VERSION.pack(version) + encode(value, version)


def read_group_record(key: bytes, value: bytes | None) -> tuple[Message, Message | None] | None:
    """The key and the value of a record; a value of None takes the key away. None for a kind that is not known."""
    kind = _version(key)
    classes = _KINDS.get(kind)
    if classes is None:
        return None
    key_class, value_class = classes
    read_key = _read(key_class, kind, key)
    if value is None:
        return read_key, None
    return read_key, _read(value_class, _version(value), value)


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise WireError("a record of a coordinator ends before its version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _read(cls: type[Message], version: int, data: bytes) -> Message:
    message, position = decoder(cls, version)(data, _VERSION.size)
    if position != len(data):
        raise WireError(f"{cls.__name__} version {version} is followed by {len(data) - position} bytes too many")
    return message
