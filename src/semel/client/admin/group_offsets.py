"""What groups have committed: read, set, delete, and compare with the ends of the partitions.

Topics go by name: an offset of a topic that was deleted is still there, and has no id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from semel.client.admin.admin_requests import by_topic, names_of
from semel.client.admin.group_values import GroupDescription, PartitionLag
from semel.client.admin.groups import GroupsPart
from semel.client.admin.offsets import OffsetsPart
from semel.client.admin.outcome import AdminErrors, Sheet
from semel.client.admin.values import OffsetSpec
from semel.client.coordinators import CoordinatorKind
from semel.client.errors import GroupNotEmpty, UnknownTopic, UnsupportedByBroker
from semel.client.metadata import TopicPartition
from semel.client.values import OffsetAndMetadata, OffsetAndTimestamp
from semel.wire.errors import ErrorCode
from semel.wire.spec.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from semel.wire.spec.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from semel.wire.spec.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseTopic,
)

_ALL_SINCE = 2
_STABLE_SINCE = 7
_MANY_SINCE = 8
_LAST_BY_NAME = 9
_HAS_MEMBERS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)

Committed = dict[TopicPartition, OffsetAndMetadata]


class GroupOffsetsPart(GroupsPart, OffsetsPart):
    async def list_group_offsets(
        self,
        groups: str | Iterable[str],
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[str, Committed]:
        """What groups have committed, for these partitions or for all. A partition for which nothing was committed is
        left out, and so a group that is not known has none. With `require_stable` the call waits for transactions that
        are about to commit offsets of these groups."""
        places = None if partitions is None else [TopicPartition(*place) for place in partitions]
        sheet: Sheet[str, Committed] = Sheet(
            names_of(groups), lambda name: f"listing offsets of group {name!r}", final=()
        )
        at_least = _STABLE_SINCE if require_stable else _ALL_SINCE

        async def ask(node_id: int, items: list[str]) -> None:
            call = self._ask.cluster.call
            try:
                request = _many_groups(items, places, require_stable)
                answer = await call(node_id, request, OffsetFetchResponse, at_least=_MANY_SINCE, at_most=_LAST_BY_NAME)
            except UnsupportedByBroker:
                for group_id in items:
                    request = _one_group(group_id, places, require_stable)
                    answer = await call(node_id, request, OffsetFetchResponse, at_least=at_least, at_most=_LAST_BY_NAME)
                    if sheet.accepts(group_id, answer.error_code):
                        _read_committed(sheet, group_id, answer.topics)
                return
            for group in answer.groups:
                if sheet.accepts(group.group_id, group.error_code):
                    _read_committed(sheet, group.group_id, group.topics)

        return await self._ask.work_off(sheet, self._ask.to_coordinators(CoordinatorKind.GROUP, sheet), ask)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Commits offsets for a group without members; GroupNotEmpty if it has some. A commit whose answer was lost is
        made again: last come, last counted, as with every commit."""
        wanted = {
            TopicPartition(*place): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for place, offset in offsets.items()
        }
        sheet: Sheet[TopicPartition, None] = Sheet(
            wanted, lambda place: f"committing an offset of {place} for group {group_id!r}"
        )

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            request = OffsetCommitRequest(
                group_id=group_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[_to_commit(index, wanted[TopicPartition(topic, index)]) for index in indexes],
                    )
                    for topic, indexes in by_topic(places).items()
                ],
            )
            answer = await self._ask.cluster.call(node_id, request, OffsetCommitResponse, at_most=_LAST_BY_NAME)
            for topic in answer.topics:
                for result in topic.partitions:
                    place = TopicPartition(topic.name, result.partition_index)
                    if result.error_code in _HAS_MEMBERS and place in sheet.pending:
                        text = f"{sheet.doing(place)}: it has members, and these commit for themselves"
                        sheet.fail(place, GroupNotEmpty(text, code=result.error_code))
                    elif sheet.accepts(place, result.error_code):
                        sheet.done(place, None)

        await self._ask.work_off(sheet, self._ask.to_coordinator(CoordinatorKind.GROUP, group_id, sheet), ask)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes what a group has committed for these partitions. GroupNotEmpty if a member reads their topic."""
        sheet: Sheet[TopicPartition, None] = Sheet(
            [TopicPartition(*place) for place in partitions],
            lambda place: f"deleting the offset of {place} of group {group_id!r}",
        )

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            request = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
                    )
                    for topic, indexes in by_topic(places).items()
                ],
            )
            answer = await self._ask.cluster.call(node_id, request, OffsetDeleteResponse)
            if answer.error_code != ErrorCode.NONE:
                for place in places:
                    sheet.accepts(place, answer.error_code)
                return
            for topic in answer.topics:
                for result in topic.partitions:
                    place = TopicPartition(topic.name, result.partition_index)
                    if sheet.accepts(place, result.error_code):
                        sheet.done(place, None)

        await self._ask.work_off(sheet, self._ask.to_coordinator(CoordinatorKind.GROUP, group_id, sheet), ask)

    async def group_lag(
        self, groups: str | Iterable[str], *, isolation_level: str = "read_uncommitted"
    ) -> dict[str, dict[TopicPartition, PartitionLag]]:
        """How far groups are behind, in every partition that they have committed or read now. With read_committed the
        end of a partition is its last stable offset."""
        described = await self.describe_groups(groups)
        committed = await self.list_group_offsets(described)
        readers = {group_id: _readers(group) for group_id, group in described.items()}
        places = {group_id: sorted({*committed[group_id], *readers[group_id]}) for group_id in described}
        everywhere = list(dict.fromkeys(place for some in places.values() for place in some))
        starts = await self._ends(dict.fromkeys(everywhere, OffsetSpec.EARLIEST), isolation_level)
        ends = await self._ends(dict.fromkeys(everywhere, OffsetSpec.LATEST), isolation_level)
        return {
            group_id: {
                place: PartitionLag(
                    committed[group_id].get(place),
                    starts[place].offset if place in starts else None,
                    ends[place].offset if place in ends else None,
                    readers[group_id].get(place),
                )
                for place in some
            }
            for group_id, some in places.items()
        }

    async def _ends(
        self, wanted: Mapping[TopicPartition, int], isolation_level: str
    ) -> Mapping[TopicPartition, OffsetAndTimestamp]:
        """Offsets of those partitions that still are there."""
        try:
            return await self.list_offsets(wanted, isolation_level=isolation_level)
        except UnknownTopic:
            return {}
        except AdminErrors as errors:
            if all(isinstance(error, UnknownTopic) for error in errors.errors.values()):
                return errors.results
            raise


def _many_groups(
    group_ids: list[str], places: Sequence[TopicPartition] | None, require_stable: bool
) -> OffsetFetchRequest:
    topics = None
    if places is not None:
        topics = [
            OffsetFetchRequestGroupTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(places).items()
        ]
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in group_ids]
    return OffsetFetchRequest(groups=groups, require_stable=require_stable)


def _one_group(group_id: str, places: Sequence[TopicPartition] | None, require_stable: bool) -> OffsetFetchRequest:
    """The form of versions up to 7."""
    topics = None
    if places is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(places).items()
        ]
    return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)


def _read_committed(
    sheet: Sheet[str, Committed],
    group_id: str,
    topics: Sequence[OffsetFetchResponseTopic] | Sequence[OffsetFetchResponseGroupTopic],
) -> None:
    """A partition that is refused makes the group's item fail, or be asked for again."""
    committed: Committed = {}
    for topic in topics:
        for found in topic.partitions:
            place = TopicPartition(topic.name, found.partition_index)
            if not sheet.accepts(group_id, found.error_code, str(place)):
                return
            if found.committed_offset >= 0:
                committed[place] = OffsetAndMetadata(
                    found.committed_offset, found.metadata or "", found.committed_leader_epoch
                )
    sheet.done(group_id, committed)


def _to_commit(index: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _readers(group: GroupDescription) -> dict[TopicPartition, str]:
    return {place: member.member_id for member in group.members for place in member.assignment}
