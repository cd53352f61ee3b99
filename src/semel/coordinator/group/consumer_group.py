"""A group of the KIP-848 protocol: what the topic says about it, and nothing else.

Three epochs tell how far it is. The group's epoch grows with every change of members, subscriptions or topics; the
target's epoch says for which of them an assignment was computed; each member has the epoch that it has reached. A
partition has one owner at a time: whoever holds it, or has been asked to give it up and has not yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from semel.coordinator.group.group_memory import bytes_of_topics
from semel.wire.spec.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

TopicPartition = tuple[bytes, int]
Partitions = frozenset[TopicPartition]
NOTHING: Partitions = frozenset()

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2


class MemberState(IntEnum):
    """Kafka's codes.

        STABLE ---> UNREVOKED ---> UNRELEASED ---> STABLE

    UNREVOKED: it has been told to give partitions up and has not confirmed it. UNRELEASED: some of its partitions are
    still with others. Each step may be skipped, and a new target leads back to any of them.
    """

    STABLE = 1
    UNREVOKED = 2
    UNRELEASED = 3


class SubscribedTopic(NamedTuple):
    topic_id: bytes
    partitions: int


class ResolvedPattern(NamedTuple):
    """The topics that matched a pattern in one version of the metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING

    @property
    def owned(self) -> Partitions:
        return self.assigned | self.revoking

    def has_reached(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch


@dataclass
class ConsumerGroup:
    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    topics: dict[str, SubscribedTopic] = field(default_factory=dict)
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    metadata_bytes: int = 0  # what its members count in memory

    @property
    def state(self) -> str:
        """With the names by which clients know it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if not all(member.has_reached(self.target_epoch) for member in self.members.values()):
            return "Reconciling"
        return "Stable"

    def subscribed_names(self, members: Iterable[ConsumerMember]) -> set[str]:
        names: set[str] = set()
        for member in members:
            names |= self.names_of(member)
        return names

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member wants, by name and by pattern."""
        resolved = self.patterns.get(member.pattern or "")
        return member.topics if resolved is None else member.topics | resolved.topics

    # -- replay

    def set_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue) -> None:
        self._forget_instance(member_id)
        known = self.members.get(member_id)
        self.metadata_bytes += bytes_of_topics(frozenset(value.subscribed_topic_names)) - _bytes_of(known)
        self.members[member_id] = replace(
            known or ConsumerMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            pattern=value.subscribed_topic_regex or None,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
        )
        if value.instance_id is not None:
            self.static[value.instance_id] = member_id

    def remove_member(self, member_id: str) -> None:
        self._forget_instance(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            self.metadata_bytes -= _bytes_of(member)
            self._disown(member)

    def _forget_instance(self, member_id: str) -> None:
        member = self.members.get(member_id)
        instance_id = None if member is None else member.instance_id
        # Another member may have taken the instance over already.
        if instance_id is not None and self.static.get(instance_id) == member_id:
            del self.static[instance_id]

    def set_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = ConsumerMember(member_id)
            self.metadata_bytes += _bytes_of(member)
        self._disown(member)
        if value is None:
            member = replace(
                member, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned=NOTHING, revoking=NOTHING
            )
        else:
            member = replace(
                member,
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=MemberState(value.state),
                assigned=partitions_of(value.assigned_partitions),
                revoking=partitions_of(value.partitions_pending_revocation),
            )
        self.members[member_id] = member
        for partition in member.owned:
            self.owners[partition] = member_id

    def _disown(self, member: ConsumerMember) -> None:
        for partition in member.owned:
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]


def _bytes_of(member: ConsumerMember | None) -> int:
    return 0 if member is None else bytes_of_topics(member.topics)


def partitions_of(topics: Iterable[TopicPartitions]) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[bytes, list[int]]:
    """In order, so that the same partitions always make the same bytes."""
    grouped: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        grouped.setdefault(topic_id, []).append(index)
    return grouped
