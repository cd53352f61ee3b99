"""A KIP-848 group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from semel.coordinator.group.consumer_draft import preferred_assignor
from semel.coordinator.group.consumer_group import NOTHING, ConsumerGroup, Partitions, by_topic
from semel.wire.spec.consumer_group_describe import (
    AssignedTopicPartitions,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    MemberAssignment,
)

_USES_KIP_848 = 1


def described_group(
    group: ConsumerGroup, names: Mapping[bytes, str], assignors: Sequence[str]
) -> DescribedConsumerGroup:
    def shown(partitions: Partitions) -> MemberAssignment:
        """Topics that are gone have no name to show."""
        return MemberAssignment(
            topic_partitions=[
                AssignedTopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=indexes)
                for topic_id, indexes in by_topic(partitions).items()
                if topic_id in names
            ]
        )

    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(list(group.members.values()), assignors),
        members=[
            ConsumerGroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                subscribed_topic_regex=member.pattern,
                assignment=shown(member.assigned),
                target_assignment=shown(group.target.get(member.member_id, NOTHING)),
                member_type=_USES_KIP_848,
            )
            for member in group.members.values()
        ],
    )
