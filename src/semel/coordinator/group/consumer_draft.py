"""A change of a KIP-848 group that is being decided: what the group will be like, and the records that make it so.

The group itself is only read. Steps build on each other: members, then topics and the group's epoch, then the target
assignment, then what the member who asks is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from semel.assign.range_assignor import assign_range
from semel.assign.subscription import Subscription
from semel.assign.uniform import assign_uniform
from semel.coordinator.group import consumer_records as records
from semel.coordinator.group.cluster import ClusterTopics
from semel.coordinator.group.consumer_group import (
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
    ResolvedPattern,
    SubscribedTopic,
    TopicPartition,
)
from semel.coordinator.group.pattern_matches import PatternMatches
from semel.coordinator.group.reconcile import reconciled
from semel.coordinator.shard import Entry

_ASSIGNORS = {"uniform": assign_uniform, "range": assign_range}

V = TypeVar("V")


class _Changed(Generic[V]):
    """What a mapping by member will be like. It is not copied for a few changes: every heartbeat makes one, and costs
    the same in a group of any size."""

    def __init__(self, before: Mapping[str, V]) -> None:
        self._before = before
        self._new: dict[str, V] = {}
        self._gone: set[str] = set()

    def get(self, member_id: str) -> V | None:
        if member_id in self._new:
            return self._new[member_id]
        return None if member_id in self._gone else self._before.get(member_id)

    def set(self, member_id: str, value: V) -> None:
        self._gone.discard(member_id)
        self._new[member_id] = value

    def remove(self, member_id: str) -> None:
        self._new.pop(member_id, None)
        self._gone.add(member_id)

    def whole(self) -> dict[str, V]:
        return {key: value for key, value in {**self._before, **self._new}.items() if key not in self._gone}


class ConsumerDraft:
    def __init__(self, group: ConsumerGroup, topics: ClusterTopics, matches: PatternMatches, now_ms: int) -> None:
        self.entries: list[Entry] = []
        self.is_changed = False
        self._group = group
        self._cluster = topics
        self._matches = matches
        self._now_ms = now_ms
        self._members = _Changed(group.members)
        self._patterns = dict(group.patterns)
        self._topics = group.topics
        self._epoch = group.epoch
        self._target_epoch = group.target_epoch
        self._target = _Changed(group.target)
        self._replaced: str | None = None

    # -- members

    def replace_static(self, old: ConsumerMember, new_id: str) -> ConsumerMember:
        """A static member came back: the place, the partitions and the target are its own."""
        group_id = self._group.group_id
        member = replace(old, member_id=new_id, epoch=0, previous_epoch=0, state=MemberState.STABLE, revoking=NOTHING)
        target = self._target.get(old.member_id) or NOTHING
        self._members.remove(old.member_id)
        self._members.set(new_id, member)
        self._target.remove(old.member_id)
        self._target.set(new_id, target)
        self._replaced = old.member_id
        self.entries += records.removed_member(group_id, old.member_id)
        self.entries.append(records.member_metadata(group_id, member))
        self.entries.append(records.target(group_id, new_id, target))
        self.entries.append(records.current(group_id, member))
        return member

    def set_member(self, member: ConsumerMember, *, is_new: bool) -> None:
        before = self._members.get(member.member_id)
        self._members.set(member.member_id, member)
        said = records.member_metadata(self._group.group_id, member)
        if before is None or records.member_metadata(self._group.group_id, before) != said:
            self.entries.append(said)
        if is_new or before is None or (before.topics, before.pattern) != (member.topics, member.pattern):
            self.is_changed = True

    def remove_member(self, member_id: str) -> None:
        self._members.remove(member_id)
        self._target.remove(member_id)
        self.entries += records.removed_member(self._group.group_id, member_id)
        self.is_changed = True

    # -- topics

    def compare_topics(self, *, matches_anew: bool = True) -> None:
        """Bumps the group's epoch when its members, or the topics they want, are not what they were.

        Matching the topics of a large cluster takes time: a timeout leaves it to the next heartbeat.
        """
        group_id = self._group.group_id
        self._forget_patterns()
        if matches_anew:
            self._resolve_patterns()
        image = self._cluster.image
        names = self._subscribed_names()
        topics = {
            name: SubscribedTopic(image.topics[name].topic_id, len(image.topics[name].partitions))
            for name in names
            if name in image.topics
        }
        if topics != self._topics:
            self._topics = topics
            self.entries.append(records.subscribed(group_id, topics))
            self.is_changed = True
        if self.is_changed:
            self._epoch += 1
            self.entries.append(records.group_epoch(group_id, self._epoch))

    def _wanted_patterns(self) -> set[str]:
        return {member.pattern for member in self._members.whole().values() if member.pattern}

    def _forget_patterns(self) -> None:
        for text in sorted(self._patterns.keys() - self._wanted_patterns()):
            del self._patterns[text]
            self.entries.append(records.pattern(self._group.group_id, text, None))

    def _resolve_patterns(self) -> None:
        group_id = self._group.group_id
        for text in sorted(self._wanted_patterns()):
            topics = self._matches.topics(text)
            known = self._patterns.get(text)
            if known is None or known.topics != topics:
                resolved = ResolvedPattern(topics, self._cluster.version, self._now_ms)
                self._patterns[text] = resolved
                self.entries.append(records.pattern(group_id, text, resolved))
                self.is_changed = True

    def _names_of(self, member: ConsumerMember) -> frozenset[str]:
        resolved = self._patterns.get(member.pattern or "")
        return member.topics if resolved is None else member.topics | resolved.topics

    def _subscribed_names(self) -> set[str]:
        names: set[str] = set()
        for member in self._members.whole().values():
            names |= self._names_of(member)
        return names

    # -- the target

    def assign(self, assignors: Sequence[str]) -> None:
        if self._epoch <= self._target_epoch:
            return
        group_id = self._group.group_id
        members = self._members.whole()
        subscriptions = {
            member_id: Subscription(
                frozenset(self._topics[name].topic_id for name in self._names_of(member) if name in self._topics),
                self._target.get(member_id) or NOTHING,
                member.instance_id,
            )
            for member_id, member in members.items()
        }
        counts = {topic.topic_id: topic.partitions for topic in self._topics.values()}
        name = preferred_assignor(members.values(), assignors)
        for member_id, partitions in _ASSIGNORS[name](subscriptions, counts).items():
            if frozenset(partitions) != self._target.get(member_id):
                self._target.set(member_id, frozenset(partitions))
                self.entries.append(records.target(group_id, member_id, frozenset(partitions)))
        self._target_epoch = self._epoch
        self.entries.append(records.target_epoch(group_id, self._epoch))

    # -- what a member is given

    def reconcile(self, member: ConsumerMember, reported: Partitions | None) -> ConsumerMember:
        member_id = member.member_id
        moved = reconciled(
            member,
            self._target_epoch,
            self._target.get(member_id) or NOTHING,
            lambda partition: self._is_owned(partition, member_id),
            reported,
        )
        if _current(moved) != _current(self._group.members.get(member_id)):
            self.entries.append(records.current(self._group.group_id, moved))
        return moved

    def _is_owned(self, partition: TopicPartition, asking: str) -> bool:
        """By somebody else than the member itself, and than the one whose place it takes."""
        return self._group.owners.get(partition) not in (None, asking, self._replaced)


def _current(member: ConsumerMember | None) -> tuple[int, int, MemberState, Partitions, Partitions] | None:
    if member is None:
        return None
    return member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking


def preferred_assignor(members: Iterable[ConsumerMember], assignors: Sequence[str]) -> str:
    """The one that most members ask for; the node's first when nobody does."""
    votes = Counter(member.assignor for member in members if member.assignor in assignors)
    return votes.most_common(1)[0][0] or assignors[0] if votes else assignors[0]
