"""ConsumerGroupDescribe (69), versions 0-1: state, members, targets and current assignments of KIP-848 groups.

A group with a topic that the asker may not describe is refused as a whole: its members would tell of it.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.spec.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)


async def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext, *, groups: GroupCoordinator, slices: Slices
) -> ConsumerGroupDescribeResponse:
    described: list[DescribedConsumerGroup] = []
    for group_id in dict.fromkeys(request.group_ids):
        described.append(await _described(groups, context, group_id))
        if slices.step():
            await slices.next()
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = context.authorised_bits(ResourceType.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=described)


async def _described(groups: GroupCoordinator, context: RequestContext, group_id: str) -> DescribedConsumerGroup:
    try:
        context.authorise(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = await groups.describe_consumer(group_id)
        for name in {
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        }:
            context.authorise_topic(Operation.DESCRIBE, name)
        return group
    except Refused as refusal:
        return DescribedConsumerGroup(group_id=group_id, error_code=refusal.code, error_message=refusal.text)
