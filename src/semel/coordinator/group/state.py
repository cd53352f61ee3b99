"""What the records of one partition of `__consumer_offsets` make: groups of both protocols, and offsets.

Offsets that were committed inside a transaction wait, by producer, for the marker that ends it. A group that has
offsets but no record of its own is a simple one: somebody commits without being a member.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from semel.coordinator.group.consumer_group import ConsumerGroup, ResolvedPattern, SubscribedTopic, partitions_of
from semel.coordinator.shard import emptied
from semel.log.types import Offset, ProducerId
from semel.records.read import Record
from semel.wire.errors import WireError
from semel.wire.schema import Message
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
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    read_group_record,
)

logger = logging.getLogger("semel.groups")

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    """`record_offset` is where the commit stands in the partition: of two commits the later one counts."""

    offset: Offset
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    record_offset: Offset


Offsets = dict[tuple[str, int], CommittedOffset]


@dataclass
class GroupState:
    """Changed by `replay` and `replay_marker` only."""

    classic: dict[str, GroupMetadataValue] = field(default_factory=dict)
    consumer: dict[str, ConsumerGroup] = field(default_factory=dict)
    offsets: dict[str, Offsets] = field(default_factory=dict)
    pending: dict[ProducerId, dict[str, Offsets]] = field(default_factory=dict)

    def replay(self, record: Record, producer_id: ProducerId) -> None:
        try:
            read = read_group_record(record.key or b"", record.value)
        except WireError as error:
            # Kafka's coordinator passes over what it cannot read, too: one bad record must not take 50 groups down.
            logger.error("a record of __consumer_offsets at offset %d is not understood: %s", record.offset, error)
            return
        if read is None:
            return
        key, value = read
        if isinstance(key, OffsetCommitKey):
            self._replay_offset(key, value, record.offset, producer_id)
        elif isinstance(key, GroupMetadataKey):
            if isinstance(value, GroupMetadataValue):
                self.classic[key.group] = value
            else:
                self.classic.pop(key.group, None)
        else:
            self._replay_consumer(key, value)

    def dropped(self) -> Iterator[None]:
        return emptied(self.classic, self.consumer, self.offsets, self.pending)

    # -- offsets

    def _replay_offset(
        self, key: OffsetCommitKey, value: Message | None, offset: Offset, producer_id: ProducerId
    ) -> None:
        place = (key.topic, key.partition)
        if not isinstance(value, OffsetCommitValue):
            self._forget(self.offsets, key.group, place)
            for producer, groups in list(self.pending.items()):
                self._forget(groups, key.group, place)
                if not groups:
                    del self.pending[producer]
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            offset,
        )
        groups = self.offsets if producer_id < 0 else self.pending.setdefault(producer_id, {})
        groups.setdefault(key.group, {})[place] = committed

    @staticmethod
    def _forget(groups: dict[str, Offsets], group_id: str, place: tuple[str, int]) -> None:
        offsets = groups.get(group_id)
        if offsets is not None:
            offsets.pop(place, None)
            if not offsets:
                del groups[group_id]

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        pending = self.pending.pop(producer_id, None)
        if pending is None or not is_commit:
            return
        for group_id, offsets in pending.items():
            into = self.offsets.setdefault(group_id, {})
            for place, committed in offsets.items():
                present = into.get(place)
                # A plain commit that came after the transactional one, but before its marker, is the newer one; and
                # compaction may have kept only that.
                if present is None or present.record_offset < committed.record_offset:
                    into[place] = committed

    def has_pending(self, group_id: str) -> bool:
        return any(group_id in groups for groups in self.pending.values())

    def is_pending(self, group_id: str, place: tuple[str, int]) -> bool:
        return any(place in groups.get(group_id, ()) for groups in self.pending.values())

    def is_simple(self, group_id: str) -> bool:
        """Whether a group is known by its offsets alone."""
        if group_id in self.classic or group_id in self.consumer:
            return False
        return group_id in self.offsets or self.has_pending(group_id)

    # -- KIP-848

    def _replay_consumer(self, key: Message, value: Message | None) -> None:
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self.consumer.get(group_id)
        if group is None:
            if value is None:
                return
            # The group's own record may come later: compaction keeps the newest of each key, in the order of writing.
            group = self.consumer[group_id] = ConsumerGroup(group_id)
        if isinstance(key, ConsumerGroupMetadataKey):
            if isinstance(value, ConsumerGroupMetadataValue):
                group.epoch = value.epoch
            else:
                del self.consumer[group_id]
        elif isinstance(key, ConsumerGroupPartitionMetadataKey):
            topics = value.topics if isinstance(value, ConsumerGroupPartitionMetadataValue) else ()
            group.topics = {one.topic_name: SubscribedTopic(one.topic_id, one.num_partitions) for one in topics}
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            if isinstance(value, ConsumerGroupMemberMetadataValue):
                group.set_member(key.member_id, value)
            else:
                group.remove_member(key.member_id)
        else:
            self._replay_assignment(group, key, value)

    def _replay_assignment(self, group: ConsumerGroup, key: Message, value: Message | None) -> None:
        if isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
            group.target_epoch = 0
            if isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
                group.target_epoch = value.assignment_epoch
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            if isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
                group.target[key.member_id] = partitions_of(value.topic_partitions)
            else:
                group.target.pop(key.member_id, None)
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            current = value if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue) else None
            group.set_current(key.member_id, current)
        elif isinstance(key, ConsumerGroupRegularExpressionKey):
            if isinstance(value, ConsumerGroupRegularExpressionValue):
                resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
                group.patterns[key.regular_expression] = resolved
            else:
                group.patterns.pop(key.regular_expression, None)
