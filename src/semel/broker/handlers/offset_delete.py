"""OffsetDelete (47), version 0: takes committed offsets of a group away, of topics that it does not read now."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.handlers.named_once import in_parts
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.group.offsets import Place
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(
    request: OffsetDeleteRequest,
    context: RequestContext,
    *,
    cluster: ClusterView,
    groups: GroupCoordinator,
    slices: Slices,
) -> OffsetDeleteResponse:
    codes: dict[Place, ErrorCode] = {}
    try:
        context.authorise(Operation.DELETE, ResourceType.GROUP, request.group_id)
        places: list[Place] = []
        for topic in request.topics:
            named = [(topic.name, one.partition_index) for one in topic.partitions]
            if not context.allows(Operation.READ, ResourceType.TOPIC, topic.name):
                codes |= dict.fromkeys(named, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                continue
            count = cluster.partition_count(topic.name)
            known = [place for place in named if 0 <= place[1] < count]
            codes |= dict.fromkeys(named, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            places += known
        for some in in_parts(list(dict.fromkeys(places))):
            codes |= await groups.delete_offsets(request.group_id, some)
            if slices.step():
                await slices.next()
    except Refused as refusal:
        return OffsetDeleteResponse(error_code=refusal.code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index, error_code=codes[topic.name, one.partition_index]
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
