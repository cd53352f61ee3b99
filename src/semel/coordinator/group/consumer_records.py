"""The records of KIP-848 groups: what must be written to change one, to replace a member, to remove all of it."""

from __future__ import annotations

from collections.abc import Mapping

from semel.coordinator.group.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    Partitions,
    ResolvedPattern,
    SubscribedTopic,
    by_topic,
)
from semel.coordinator.group.records import entry
from semel.coordinator.shard import Entry
from semel.wire.spec.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)
from semel.wire.spec.group_records import SubscribedTopic as SubscribedTopicRecord


def group_epoch(group_id: str, epoch: int) -> Entry:
    return entry(ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch))


def subscribed(group_id: str, topics: Mapping[str, SubscribedTopic]) -> Entry:
    value = ConsumerGroupPartitionMetadataValue(
        topics=[
            SubscribedTopicRecord(topic_id=topic.topic_id, topic_name=name, num_partitions=topic.partitions)
            for name, topic in sorted(topics.items())
        ]
    )
    return entry(ConsumerGroupPartitionMetadataKey(group_id=group_id), value)


def member_metadata(group_id: str, member: ConsumerMember) -> Entry:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
    )
    return entry(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_epoch(group_id: str, epoch: int) -> Entry:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return entry(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target(group_id: str, member_id: str, partitions: Partitions) -> Entry:
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_topics(partitions))
    return entry(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current(group_id: str, member: ConsumerMember) -> Entry:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_topics(member.assigned),
        partitions_pending_revocation=_topics(member.revoking),
    )
    return entry(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def pattern(group_id: str, text: str, resolved: ResolvedPattern | None) -> Entry:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=text)
    if resolved is None:
        return entry(key, None)
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return entry(key, value)


def removed_member(group_id: str, member_id: str) -> list[Entry]:
    return [
        entry(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        entry(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        entry(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def removed_group(group: ConsumerGroup) -> list[Entry]:
    """Its own record goes last: what comes before needs the group to be there."""
    group_id = group.group_id
    entries = [one for member_id in group.members for one in removed_member(group_id, member_id)]
    entries += [pattern(group_id, text, None) for text in group.patterns]
    entries.append(entry(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    entries.append(entry(ConsumerGroupPartitionMetadataKey(group_id=group_id), None))
    entries.append(entry(ConsumerGroupMetadataKey(group_id=group_id), None))
    return entries


def _topics(partitions: Partitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions).items()
    ]
