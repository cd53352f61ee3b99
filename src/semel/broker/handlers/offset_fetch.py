"""OffsetFetch (9), versions 1-10: what groups have committed; from version 8 on for several groups, from 10 on by id.

A group that is not known has no offsets, which is no error. A partition without an offset is answered with -1.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.handlers.named_once import in_parts
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.group.offsets import Place
from semel.coordinator.group.state import CommittedOffset
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_GROUP_ERROR_SINCE = 2
_MANY_GROUPS_SINCE = 8
_IDS_SINCE = 10
_NO_OFFSET = -1


async def handle(
    request: OffsetFetchRequest,
    context: RequestContext,
    *,
    cluster: ClusterView,
    groups: GroupCoordinator,
    slices: Slices,
) -> OffsetFetchResponse:
    if context.version >= _MANY_GROUPS_SINCE:
        named = {group.group_id: group for group in reversed(request.groups)}
        fetched = [
            await _fetched(cluster, groups, context, named[group_id], request.require_stable, slices)
            for group_id in dict.fromkeys(group.group_id for group in request.groups)
        ]
        return OffsetFetchResponse(groups=fetched)
    wanted = request.topics
    topics = None
    if wanted is not None:
        topics = [
            OffsetFetchRequestGroupTopic(name=topic.name, partition_indexes=topic.partition_indexes) for topic in wanted
        ]
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    return _of_one_group(
        await _fetched(cluster, groups, context, group, request.require_stable, slices), request, context.version
    )


async def _fetched(
    cluster: ClusterView,
    groups: GroupCoordinator,
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    slices: Slices,
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=group.group_id)
    try:
        context.authorise(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        refused, names = _authorised(cluster, context, group.topics)
        found: dict[Place, CommittedOffset | ErrorCode | None] = {}
        places = None if group.topics is None else [(name, index) for name, indexes in names for index in indexes]
        for some in [None] if places is None else in_parts(places):
            found |= await groups.fetch_offsets(
                group.group_id,
                some,
                require_stable=require_stable,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
            )
            if slices.step():
                await slices.next()
    except Refused as refusal:
        answer.error_code = refusal.code
        return answer
    topics: dict[str, list[OffsetFetchResponseGroupPartition]] = {name: [] for name, _ in names}
    for (name, index), committed in found.items():
        if group.topics is None and not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            continue
        topics.setdefault(name, []).append(_partition(index, committed))
        if slices.step():
            await slices.next()
    answer.topics = [*refused]
    for name, partitions in topics.items():
        known = cluster.image.topics.get(name)
        topic_id = None if known is None else known.topic_id
        if context.version >= _IDS_SINCE and topic_id is None:
            continue  # deleted, and it has no id that could be told
        topic = OffsetFetchResponseGroupTopic(name=name, partitions=partitions)
        if topic_id is not None:
            topic.topic_id = topic_id
        answer.topics.append(topic)
    return answer


def _authorised(
    cluster: ClusterView, context: RequestContext, topics: Sequence[OffsetFetchRequestGroupTopic] | None
) -> tuple[list[OffsetFetchResponseGroupTopic], list[tuple[str, Sequence[int]]]]:
    """Answers for the topics that cannot be told of, and the names of the others."""
    refused: list[OffsetFetchResponseGroupTopic] = []
    names: list[tuple[str, Sequence[int]]] = []
    for topic in topics or ():
        try:
            name = cluster.topic_of_id(topic.topic_id).name if context.version >= _IDS_SINCE else topic.name
            context.authorise_topic(Operation.DESCRIBE, name)
            names.append((name, topic.partition_indexes))
        except Refused as refusal:
            partitions = [_partition(index, refusal.code) for index in dict.fromkeys(topic.partition_indexes)]
            answer = OffsetFetchResponseGroupTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            refused.append(answer)
    return refused, names


def _partition(index: int, committed: CommittedOffset | ErrorCode | None) -> OffsetFetchResponseGroupPartition:
    if isinstance(committed, CommittedOffset):
        return OffsetFetchResponseGroupPartition(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )
    return OffsetFetchResponseGroupPartition(
        partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=committed or ErrorCode.NONE
    )


def _of_one_group(group: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    """The form of versions 1 to 7; version 1 has no place for an error of the group, only for those of partitions."""
    if group.error_code and version < _GROUP_ERROR_SINCE:
        code = ErrorCode(group.error_code)
        group.topics = [
            OffsetFetchResponseGroupTopic(
                name=topic.name, partitions=[_partition(index, code) for index in topic.partition_indexes]
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
