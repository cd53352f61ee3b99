"""CreateTopics (19), versions 2-7: each topic on its own; answered when all of them are committed.

Left out: timeouts, because the answer comes as soon as the one node of the cluster has flushed the decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType
from semel.broker.context import RequestContext
from semel.broker.controller_channel import AdminChannel
from semel.broker.handlers.partition_limit import too_many_partitions
from semel.broker.node_info import NodeInfo
from semel.config import describe_topic
from semel.controller.controller import DEFAULT_COUNT, CreatedTopic, NewTopic
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.lazy import lazily
from semel.wire.spec.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatedTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def handle(
    request: CreateTopicsRequest,
    context: RequestContext,
    *,
    controller: AdminChannel,
    node: NodeInfo,
    slices: Slices,
) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    refused: dict[str, CreatedTopic | Refused] = {}
    wanted: list[NewTopic] = []
    may_create_any = context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    too_many = too_many_partitions(_count(topic, node) for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if named[topic.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named {named[topic.name]} times")
            if not may_create_any:
                context.authorise_topic(Operation.CREATE, topic.name)
            if too_many is not None:
                raise too_many
            wanted.append(_wanted(topic))
        except Refused as refusal:
            refused[topic.name] = refusal
        if slices.step():
            await slices.next()
    made = await controller.create_topics(wanted, validate_only=request.validate_only)
    told = refused | dict(zip((one.name for one in wanted), made, strict=True))
    return CreateTopicsResponse(topics=lazily(partial(_result, node, context, told), list(named)))


def _count(topic: CreatableTopic, node: NodeInfo) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return node.config.int("num.partitions") if topic.num_partitions == DEFAULT_COUNT else topic.num_partitions


def _result(
    node: NodeInfo, context: RequestContext, told: Mapping[str, CreatedTopic | Refused], name: str
) -> CreatableTopicResult:
    result = CreatableTopicResult(name=name)
    created = told[name]
    if isinstance(created, Refused):
        result.error_code, result.error_message = created.code, created.text
    else:
        _tell(result, created, node, context)
    return result


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


def _tell(result: CreatableTopicResult, created: CreatedTopic, node: NodeInfo, context: RequestContext) -> None:
    """A topic that was only validated has no id."""
    if created.topic_id is not None:
        result.topic_id = created.topic_id
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, created.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return
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
        for setting in describe_topic(created.configs, node.config)
    ]
