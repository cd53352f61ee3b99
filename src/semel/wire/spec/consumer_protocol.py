"""What consumers of a classic group tell each other: their subscriptions in JoinGroup, their assignments in SyncGroup.

The coordinator passes these bytes on unread. Subscription and assignment begin with the int16 of their version; what
the sticky assignors add to a subscription does not.
"""

from semel.wire.schema import I32, Array, Bytes, Message, Str, Struct, field


class ConsumerTopicPartitions(Struct):
    topic: Str = ""
    partitions: Array[I32] = ()


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: Array[Str] = ()
    user_data: Bytes | None = None
    owned_partitions: Array[ConsumerTopicPartitions] = field(default=(), since=1)
    generation_id: I32 = field(default=-1, since=2)
    rack_id: Str | None = field(default=None, since=3)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: Array[ConsumerTopicPartitions] = ()
    user_data: Bytes | None = None


class StickyUserData(Message, versions="0-1"):
    """Of the assignor `sticky`, whose members give up everything before they join and say here what they had."""

    previous_assignment: Array[ConsumerTopicPartitions] = ()
    generation: I32 = field(default=-1, since=1)


class CooperativeStickyUserData(Message, versions="0"):
    generation: I32 = -1
