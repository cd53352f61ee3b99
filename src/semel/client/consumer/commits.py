"""The group's offsets at its coordinator: committing them, in order, and reading those that were committed.

Commits of one consumer follow each other, never overlap: a retried one cannot overwrite a later one. Reading waits
while a transaction holds an offset back that may still be committed (KIP-447).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from semel.client.cluster import Cluster
from semel.client.consumer.offsets import by_topic
from semel.client.consumer.settings import CONSUMER, ConsumerSettings
from semel.client.coordinators import MOVED, CoordinatorKind, Coordinators
from semel.client.errors import (
    CommitFailed,
    RetriableError,
    SemelError,
    TimedOut,
    error_for,
    is_retriable,
)
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity, OffsetAndMetadata
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from semel.wire.spec.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

T = TypeVar("T")

_NAMES_UNTIL = 9
_NEWEST = 1 << 15
_MEMBERS_SINCE = 9
"""From here on requests carry a member's epoch, as group_protocol consumer needs."""


class GroupOffsets:
    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        settings: ConsumerSettings,
        *,
        identity: Callable[[], GroupIdentity],
        shares: Callable[[], bool],
        refused: Callable[[int], None],
    ) -> None:
        """`shares`: whether partitions are those of a member. `refused` hears of codes that say that we are not it."""
        self._cluster = cluster
        self._coordinators = coordinators
        self._settings = settings
        self._group_id = settings.group_id or ""
        self._identity = identity
        self._shares = shares
        self._refused = refused
        self._turn = asyncio.Lock()

    # -- committing

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float) -> None:
        """Returns when they are committed. Raises CommitFailed when we are not the member any more."""
        if not offsets:
            return
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._turn.acquire()
        except TimeoutError:
            raise TimedOut("an earlier commit is still under way") from None
        try:
            await self._repeat(lambda: self._commit_once(offsets), deadline_s, "the commit")
        finally:
            self._turn.release()

    async def _commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        identity = self._identity()
        if self._shares() and identity.generation_id < 0:
            # The broker takes anybody's commit while the group has no members: also that of one who was a member.
            raise CommitFailed(f"this consumer is not a member of group {self._group_id!r} at the moment")
        ids = self._topic_ids(offsets)
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=ids.get(topic, NO_UUID),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=entry.partition,
                            committed_offset=offsets[entry].offset,
                            committed_leader_epoch=offsets[entry].leader_epoch,
                            committed_metadata=offsets[entry].metadata,
                        )
                        for entry in entries
                    ],
                )
                for topic, entries in by_topic(offsets).items()
            ],
        )
        node_id = await self._coordinators.find(CoordinatorKind.GROUP, self._group_id)
        response = await self._cluster.call(
            node_id,
            request,
            OffsetCommitResponse,
            at_least=self._oldest(identity),
            at_most=_NEWEST if ids else _NAMES_UNTIL,
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        codes = {
            TopicPartition(topic.name or names.get(topic.topic_id, "?"), entry.partition_index): entry.error_code
            for topic in response.topics
            for entry in topic.partitions
            if entry.error_code != ErrorCode.NONE
        }
        if codes:
            self._commit_refused(codes)

    def _commit_refused(self, codes: dict[TopicPartition, int]) -> None:
        """Raises the worst of it."""
        partition, code = min(codes.items(), key=lambda item: is_retriable(item[1]))
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            # The epoch has moved on, or the next heartbeat tells it, or that we are out: then we are no member.
            self._refused(code)
            raise RetriableError("the member's epoch has changed meanwhile", code=code)
        error = error_for(code, f"committing offsets of group {self._group_id!r} ({partition})")
        if isinstance(error, CommitFailed) or code == ErrorCode.FENCED_INSTANCE_ID:
            self._refused(code)
        self._note_move(code)
        raise error

    # -- reading

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those that have a committed offset."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        return await self._repeat(
            lambda: self.committed_once(partitions), deadline_s, f"the committed offsets of group {self._group_id!r}"
        )

    async def committed_once(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """One try: raises RetriableErrors too."""
        try:
            return await self._ask_committed(partitions)
        except RetriableError as error:
            self._note_lost(error)
            raise

    async def _ask_committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        if not partitions:
            return {}
        identity = self._identity()
        ids = self._topic_ids(partitions)
        topics = by_topic(partitions)
        is_member = self._settings.group_protocol == CONSUMER and bool(identity.member_id)
        request = OffsetFetchRequest(
            group_id=self._group_id,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=[entry.partition for entry in entries])
                for topic, entries in topics.items()
            ],
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self._group_id,
                    member_id=identity.member_id if is_member else None,
                    member_epoch=identity.generation_id if is_member else -1,
                    topics=[
                        OffsetFetchRequestGroupTopic(
                            name=topic,
                            topic_id=ids.get(topic, NO_UUID),
                            partition_indexes=[entry.partition for entry in entries],
                        )
                        for topic, entries in topics.items()
                    ],
                )
            ],
            require_stable=True,
        )
        node_id = await self._coordinators.find(CoordinatorKind.GROUP, self._group_id)
        response = await self._cluster.call(
            node_id, request, OffsetFetchResponse, at_most=_NEWEST if ids else _NAMES_UNTIL
        )
        return self._read_committed(response, {topic_id: name for name, topic_id in ids.items()}, identity)

    def _read_committed(
        self, response: OffsetFetchResponse, names: dict[bytes, str], identity: GroupIdentity
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        doing = f"reading the offsets of group {self._group_id!r}"
        code = response.groups[0].error_code if response.groups else response.error_code
        if code != ErrorCode.NONE:
            self._note_move(code)
            if code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID) and identity.member_id:
                raise RetriableError(f"{doing}: the membership is changing", code=code)
            raise error_for(code, doing)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        if response.groups:
            entries = [
                (TopicPartition(topic.name or names.get(topic.topic_id, "?"), entry.partition_index), entry)
                for topic in response.groups[0].topics
                for entry in topic.partitions
            ]
        else:
            entries = [
                (TopicPartition(topic.name, entry.partition_index), entry)  # type: ignore[misc]
                for topic in response.topics
                for entry in topic.partitions
            ]
        for partition, entry in entries:
            if entry.error_code != ErrorCode.NONE:
                raise error_for(entry.error_code, f"{doing} ({partition})")
            if entry.committed_offset >= 0:
                found[partition] = OffsetAndMetadata(
                    entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch
                )
        return found

    # -- both

    async def _repeat(self, attempt: Callable[[], Awaitable[T]], deadline_s: float, what: str) -> T:
        """Tries again, with pauses, what may succeed later, until the time is over."""
        attempts = self._cluster.attempts(deadline_s)
        reason: SemelError | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    return await attempt()
            except TimeoutError:
                raise TimedOut(f"{what} took too long; last: {reason or 'no answer'}") from reason
            except RetriableError as error:
                reason = error
                self._note_lost(error)
            pause_s = attempts.pause_s()
            if pause_s is None:
                raise TimedOut(f"{what} took too long; last: {reason}") from reason
            await asyncio.sleep(pause_s)

    def _note_lost(self, error: RetriableError) -> None:
        """Without a code it is the connection that has failed, not the coordinator."""
        if error.code is None:
            self._coordinators.forget(CoordinatorKind.GROUP, self._group_id)
            self._cluster.stale()

    def _note_move(self, code: int) -> None:
        if code in MOVED:
            self._coordinators.forget(CoordinatorKind.GROUP, self._group_id)

    def _oldest(self, identity: GroupIdentity) -> int:
        is_member = self._settings.group_protocol == CONSUMER and bool(identity.member_id)
        return _MEMBERS_SINCE if is_member else 0

    def _topic_ids(self, partitions: Collection[TopicPartition]) -> dict[str, bytes]:
        """The ids of the topics, if all are known; else none."""
        topics = self._cluster.topics
        ids = {name: topics[name].topic_id for name in {entry.topic for entry in partitions} if name in topics}
        if len(ids) < len({entry.topic for entry in partitions}) or NO_UUID in ids.values():
            return {}
        return ids
