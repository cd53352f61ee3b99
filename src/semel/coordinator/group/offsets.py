"""Committed offsets of the groups of one shard: who may commit, fetch and delete them, and when they expire."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from semel.config import BrokerConfig
from semel.coordinator.group.classic_group import ClassicGroup
from semel.coordinator.group.classic_rebalance import ClassicRebalance
from semel.coordinator.group.classic_states import ClassicState
from semel.coordinator.group.records import offset_entry
from semel.coordinator.group.state import NO_EXPIRY, CommittedOffset, GroupState
from semel.coordinator.group.subscriptions import CONSUMER_PROTOCOL
from semel.coordinator.shard import Entry, Shard
from semel.host.aging import AgingClock
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.log.types import Epoch, Offset, ProducerId
from semel.wire.errors import ErrorCode
from semel.wire.spec.group_records import OffsetCommitValue

NO_GENERATION = -1
DEFAULT_RETENTION = -1
LATEST_EXPIRY_MS = (1 << 63) - 1
# From this version of OffsetCommit on, clients know KIP-848: its errors, and that a group may be missing.
KIP_848_SINCE = 9

_S = ClassicState
Place = tuple[str, int]


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: Offset
    leader_epoch: Epoch
    metadata: str | None


class Committer(NamedTuple):
    """Who commits: a member with its generation (or member epoch), or nobody in particular."""

    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None
    version: int = KIP_848_SINCE


class GroupOffsets:
    def __init__(
        self, shard: Shard[GroupState], rebalance: ClassicRebalance, config: Callable[[], BrokerConfig], clock: Clock
    ) -> None:
        self._shard = shard
        self._rebalance = rebalance
        self._config = config
        self._clock = clock
        self._aging = AgingClock(clock)

    # -- committing

    def commit(
        self, group_id: str, committer: Committer, offsets: Iterable[OffsetToCommit], retention_ms: int
    ) -> dict[Place, ErrorCode]:
        self._check_committer(group_id, committer, is_transactional=False)
        if retention_ms < DEFAULT_RETENTION:
            raise Refused(ErrorCode.INVALID_REQUEST, f"offsets cannot be kept for {retention_ms} ms")
        group = self._rebalance.groups.get(group_id)
        member = None if group is None else group.members.get(committer.member_id)
        if group is not None and member is not None and group.state in (_S.STABLE, _S.PREPARING_REBALANCE):
            self._rebalance.renew_session(group, member)
        codes, entries = self._entries(group_id, offsets, retention_ms)
        self._shard.append(entries)
        return codes

    def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        producer: tuple[ProducerId, Epoch],
        offsets: Iterable[OffsetToCommit],
    ) -> dict[Place, ErrorCode]:
        """The offsets count when the producer's transaction is committed (KIP-98), and only if they come from the
        current generation of the group (KIP-447)."""
        self._check_committer(group_id, committer, is_transactional=True)
        codes, entries = self._entries(group_id, offsets, DEFAULT_RETENTION)
        self._shard.append(entries, producer=producer)
        return codes

    def _entries(
        self, group_id: str, offsets: Iterable[OffsetToCommit], retention_ms: int
    ) -> tuple[dict[Place, ErrorCode], list[Entry]]:
        now_ms = self._clock.wall_ms()
        most_bytes = self._config().int("offset.metadata.max.bytes")
        codes: dict[Place, ErrorCode] = {}
        entries: list[Entry] = []
        for one in offsets:
            metadata = one.metadata or ""
            if len(metadata) > most_bytes:
                codes[one.topic, one.partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            codes[one.topic, one.partition] = ErrorCode.NONE
            value = OffsetCommitValue(
                offset=one.offset,
                leader_epoch=one.leader_epoch,
                metadata=metadata,
                commit_timestamp=now_ms,
                expire_timestamp=(
                    NO_EXPIRY if retention_ms == DEFAULT_RETENTION else min(now_ms + retention_ms, LATEST_EXPIRY_MS)
                ),
            )
            entries.append(offset_entry(group_id, one.topic, one.partition, value))
        return codes, entries

    def _check_committer(self, group_id: str, committer: Committer, *, is_transactional: bool) -> None:
        group = self._rebalance.groups.get(group_id)
        if group is not None:
            self._check_classic(group, committer, is_transactional=is_transactional)
        elif group_id in self._shard.state.consumer:
            self._check_consumer(group_id, committer, is_transactional=is_transactional)
        elif committer.generation >= 0:
            code = ErrorCode.ILLEGAL_GENERATION
            if is_transactional or committer.version >= KIP_848_SINCE:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            raise Refused(code, f"there is no group {group_id!r}, so it has no generation {committer.generation}")

    def _check_classic(self, group: ClassicGroup, committer: Committer, *, is_transactional: bool) -> None:
        if committer.generation < 0 and group.state is _S.EMPTY:
            return
        if committer.generation >= 0 or committer.member_id or committer.instance_id is not None:
            group.check_member(committer.member_id, committer.instance_id)
            group.check_generation(committer.generation)
        elif not is_transactional:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{group.group_id!r} has members: only they may commit")
        if not is_transactional and group.state is _S.COMPLETING_REBALANCE:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing: sync first")

    def _check_consumer(self, group_id: str, committer: Committer, *, is_transactional: bool) -> None:
        group = self._shard.state.consumer[group_id]
        if committer.generation < 0 and not group.members:
            return
        if is_transactional and committer.generation < 0 and not committer.member_id:
            return
        if committer.member_id not in group.members:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{committer.member_id!r} is not a member of {group_id!r}")
        if not is_transactional and committer.version < KIP_848_SINCE:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"members of {group_id!r} commit with version 9 or above")
        self._check_member_epoch(group_id, committer.member_id, committer.generation)

    def _check_member_epoch(self, group_id: str, member_id: str, epoch: int) -> None:
        member = self._shard.state.consumer[group_id].members[member_id]
        if epoch != member.epoch:
            raise Refused(ErrorCode.STALE_MEMBER_EPOCH, f"the epoch of {member_id!r} is {member.epoch}, not {epoch}")

    # -- fetching

    def check_fetcher(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Members of KIP-848 groups say who they are, so that one which was fenced reads no offsets of others."""
        group = self._shard.state.consumer.get(group_id)
        if group is None or (member_id is None and member_epoch < 0):
            return
        if member_id not in group.members:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of {group_id!r}")
        self._check_member_epoch(group_id, member_id, member_epoch)

    def fetch(
        self, group_id: str, places: Collection[Place] | None, *, require_stable: bool
    ) -> dict[Place, CommittedOffset | ErrorCode | None]:
        """What is committed for these partitions, or for all that have something. A partition whose offset an open
        transaction may change is UNSTABLE_OFFSET_COMMIT, for those who cannot live with that (KIP-447)."""
        state = self._shard.state
        offsets = state.offsets.get(group_id, {})
        found: dict[Place, CommittedOffset | ErrorCode | None] = {}
        for place in offsets if places is None else places:
            if require_stable and state.pending and state.is_pending(group_id, place):
                found[place] = ErrorCode.UNSTABLE_OFFSET_COMMIT
            else:
                found[place] = offsets.get(place)
        return found

    # -- deleting

    def delete(self, group_id: str, places: Iterable[Place]) -> dict[Place, ErrorCode]:
        state = self._shard.state
        group = self._rebalance.groups.get(group_id)
        if group is None and group_id not in state.consumer and not state.is_simple(group_id):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if group is not None and group.state is not _S.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
            raise Refused(ErrorCode.NON_EMPTY_GROUP, f"{group_id!r} has members, and what they read is not known")
        codes: dict[Place, ErrorCode] = {}
        entries: list[Entry] = []
        for place in places:
            if self._is_subscribed(group_id, place[0]):
                codes[place] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                continue
            codes[place] = ErrorCode.NONE
            if place in state.offsets.get(group_id, {}) or state.is_pending(group_id, place):
                entries.append(offset_entry(group_id, *place, None))
        self._shard.append(entries)
        return codes

    def _is_subscribed(self, group_id: str, topic: str) -> bool:
        group = self._rebalance.groups.get(group_id)
        if group is not None:
            topics = group.subscribed_topics
            # What cannot be read is taken to be everything.
            return topic in topics if topics is not None else bool(group.members)
        consumer = self._shard.state.consumer.get(group_id)
        return consumer is not None and topic in consumer.subscribed_names(consumer.members.values())

    def removals(self, group_id: str) -> list[Entry]:
        """Everything that is committed for a group, pending or not, goes away."""
        state = self._shard.state
        places = dict.fromkeys(state.offsets.get(group_id, ()))
        for groups in state.pending.values():
            places |= dict.fromkeys(groups.get(group_id, ()))
        return [offset_entry(group_id, *place, None) for place in places]

    def topics_of(self, group_id: str) -> set[str]:
        """Of which anything is committed for a group, pending or not."""
        state = self._shard.state
        places = set(state.offsets.get(group_id, ()))
        for groups in state.pending.values():
            places.update(groups.get(group_id, ()))
        return {topic for topic, _ in places}

    def topics_deleted(self, topics: Collection[str]) -> None:
        """A topic that is created anew under an old name must not begin where the old one was left."""
        if not topics:
            return
        state = self._shard.state
        entries: dict[Entry, None] = {}
        for groups in [state.offsets, *state.pending.values()]:
            for group_id, offsets in groups.items():
                for topic, index in offsets:
                    if topic in topics:
                        entries[offset_entry(group_id, topic, index, None)] = None
        self._shard.append(entries)

    # -- expiring

    def expired(self, group_id: str) -> tuple[list[Entry], bool]:
        """What is overdue of one group, and whether nothing is left of its offsets then."""
        state = self._shard.state
        offsets = state.offsets.get(group_id, {})
        if not offsets:
            return [], not state.has_pending(group_id)
        group = self._rebalance.groups.get(group_id)
        if group is not None and not self._may_expire(group):
            return [], False
        retention_ms = self._config().int("offsets.retention.minutes") * 60_000
        now_ms = self._aging.now_ms(retention_ms)
        # Offsets of a group that had members are kept from the moment it lost the last of them.
        since_ms = group.since_ms if group is not None and group.state is _S.EMPTY and group.protocol_type else None
        entries: list[Entry] = []
        for place, committed in offsets.items():
            base_ms = committed.commit_timestamp_ms if since_ms is None else since_ms
            expires_ms = committed.expire_timestamp_ms if committed.expire_timestamp_ms >= 0 else base_ms + retention_ms
            pending = state.is_pending(group_id, place)
            if now_ms >= expires_ms and not pending and not self._is_subscribed(group_id, place[0]):
                entries.append(offset_entry(group_id, *place, None))
        return entries, len(entries) == len(offsets) and not state.has_pending(group_id)

    def _may_expire(self, group: ClassicGroup) -> bool:
        """While members come and go, or when nobody knows what they read, nothing expires."""
        if group.state is _S.EMPTY:
            return True
        return group.state is _S.STABLE and group.subscribed_topics is not None
