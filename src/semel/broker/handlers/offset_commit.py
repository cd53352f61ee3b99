"""OffsetCommit (8), versions 2-10: stores how far a group has read; topics by name, from version 10 on by id.

Partitions that are refused do not keep the others from being committed.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.handlers.named_once import in_parts
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.group.offsets import Committer, OffsetToCommit
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_IDS_SINCE = 10


async def handle(
    request: OffsetCommitRequest,
    context: RequestContext,
    *,
    cluster: ClusterView,
    groups: GroupCoordinator,
    slices: Slices,
) -> OffsetCommitResponse:
    try:
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
    except Refused as refusal:
        return _refused(request, refusal.code)
    topics: list[OffsetCommitResponseTopic] = []
    accepted: list[tuple[OffsetToCommit, OffsetCommitResponsePartition]] = []
    for topic in request.topics:
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        topics.append(answer)
        partitions = answer.partitions = [
            OffsetCommitResponsePartition(partition_index=one.partition_index) for one in topic.partitions
        ]
        try:
            name, count = _authorised(cluster, context, topic)
        except Refused as refusal:
            for result in partitions:
                result.error_code = refusal.code
            continue
        for one, result in zip(topic.partitions, partitions, strict=True):
            if slices.step():
                await slices.next()
            if not 0 <= one.partition_index < count:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            offset = OffsetToCommit(
                name, one.partition_index, one.committed_offset, one.committed_leader_epoch, one.committed_metadata
            )
            accepted.append((offset, result))
    committer = Committer(
        request.member_id, request.generation_id_or_member_epoch, request.group_instance_id, context.version
    )
    for some in in_parts(accepted):
        try:
            offsets = [offset for offset, _ in some]
            codes = await groups.commit(
                request.group_id,
                committer,
                offsets,
                request.retention_time_ms,
                connection=context.connection.number,
            )
        except Refused as refusal:
            for _, result in some:
                result.error_code = refusal.code
        else:
            for offset, result in some:
                result.error_code = codes[offset.topic, offset.partition]
        if slices.step():
            await slices.next()
    return OffsetCommitResponse(topics=topics)


def _authorised(cluster: ClusterView, context: RequestContext, topic: OffsetCommitRequestTopic) -> tuple[str, int]:
    """The name and the partition count of a topic that this principal may read."""
    if context.version >= _IDS_SINCE:
        known = cluster.topic_of_id(topic.topic_id)
        context.authorise_topic(Operation.READ, known.name)
        return known.name, len(known.partitions)
    context.authorise_topic(Operation.READ, topic.name)
    count = cluster.partition_count(topic.name)
    if not count:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name!r}")
    return topic.name, count


def _refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
