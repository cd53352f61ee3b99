"""CreateTopics (19), versions 2-7: each topic on its own; answered when all of them are committed.

Left out: timeouts, because the answer comes as soon as the one node of the cluster has flushed the decision.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.internal_topics import as_made_here
from semel.config import describe_topic
from semel.controller.controller import CreatedTopic, NewTopic
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatedTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def handle(broker: Broker, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    results: list[CreatableTopicResult] = []
    waits_for: list[asyncio.Future[None]] = []
    may_create_any = context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    named = Counter(topic.name for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if named[topic.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named {named[topic.name]} times")
            if not may_create_any:
                context.authorise_topic(Operation.CREATE, topic.name)
            created = broker.controller.create_topic(
                as_made_here(broker, _wanted(topic)), validate_only=request.validate_only
            )
        except Refused as refusal:
            results.append(CreatableTopicResult(name=topic.name, error_code=refusal.code, error_message=refusal.text))
            continue
        if created.committed is not None:
            waits_for.append(created.committed)
        results.append(_result(broker, context, created))
    if waits_for:
        await asyncio.gather(*waits_for)
    return CreateTopicsResponse(topics=results)


def _wanted(topic: CreatableTopic) -> NewTopic:
    assignments = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
    if len(assignments) < len(topic.assignments):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        {config.name: config.value for config in topic.configs},
    )


def _result(broker: Broker, context: RequestContext, created: CreatedTopic) -> CreatableTopicResult:
    """A topic that was only validated has no id."""
    result = CreatableTopicResult(name=created.name)
    if created.committed is not None:
        result.topic_id = created.topic_id
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, created.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = created.partitions
    result.replication_factor = created.replication_factor
    result.configs = [
        CreatedTopicConfig(
            name=setting.name,
            value=setting.value,
            read_only=setting.read_only,
            config_source=setting.source,
            is_sensitive=setting.sensitive,
        )
        for setting in describe_topic(created.configs, broker.config)
    ]
    return result
