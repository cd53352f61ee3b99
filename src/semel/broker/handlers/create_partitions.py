"""CreatePartitions (37), versions 0-3: more partitions for topics; answered when all of them are committed.

Left out: timeouts, because the answer comes as soon as the one node of the cluster has flushed the decision.
"""

from __future__ import annotations

from collections import Counter

from semel.broker.authoriser import Operation
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.controller_channel import AdminChannel, NewPartitions
from semel.broker.handlers.partition_limit import too_many_partitions
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


async def handle(
    request: CreatePartitionsRequest,
    context: RequestContext,
    *,
    controller: AdminChannel,
    cluster: ClusterView,
    slices: Slices,
) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = {name: CreatePartitionsTopicResult(name=name) for name in named}
    wanted: list[NewPartitions] = []
    too_many = too_many_partitions(topic.count - cluster.partition_count(topic.name) for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if named[topic.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named {named[topic.name]} times")
            context.authorise_topic(Operation.ALTER, topic.name)
            if too_many is not None:
                raise too_many
        except Refused as refusal:
            _refuse(results[topic.name], refusal)
        else:
            assignments = None if topic.assignments is None else [one.broker_ids for one in topic.assignments]
            wanted.append(NewPartitions(topic.name, topic.count, assignments))
        if slices.step():
            await slices.next()
    added = await controller.create_partitions(wanted, validate_only=request.validate_only)
    for one, refused in zip(wanted, added, strict=True):
        if refused is not None:
            _refuse(results[one.topic], refused)
    return CreatePartitionsResponse(results=list(results.values()))


def _refuse(result: CreatePartitionsTopicResult, refusal: Refused) -> None:
    result.error_code, result.error_message = refusal.code, refusal.text
