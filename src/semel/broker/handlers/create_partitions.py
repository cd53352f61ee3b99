"""CreatePartitions (37), versions 0-3: more partitions for topics; answered when all of them are committed.

Left out: timeouts, because the answer comes as soon as the one node of the cluster has flushed the decision.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from semel.broker.authoriser import Operation
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.internal_topics import refuse_if_internal
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


async def handle(broker: Broker, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    results: list[CreatePartitionsTopicResult] = []
    waits_for: list[asyncio.Future[None]] = []
    named = Counter(topic.name for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if named[topic.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named {named[topic.name]} times")
            context.authorise_topic(Operation.ALTER, topic.name)
            refuse_if_internal(topic.name, "given more partitions: every group and transactional id would move")
            assignments = None if topic.assignments is None else [one.broker_ids for one in topic.assignments]
            committed = broker.controller.create_partitions(
                topic.name, topic.count, assignments, validate_only=request.validate_only
            )
        except Refused as refusal:
            result.error_code, result.error_message = refusal.code, refusal.text
        else:
            if committed is not None:
                waits_for.append(committed)
        results.append(result)
    if waits_for:
        await asyncio.gather(*waits_for)
    return CreatePartitionsResponse(results=results)
