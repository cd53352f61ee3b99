"""Metadata (3), versions 0-13: nodes, topics, partitions and their leaders.

A topic that is missing is created when both the request and `auto.create.topics.enable` allow it; the answer waits for
it, so that the client need not ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType, authorised_bits
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.internal_topics import new_topic
from semel.broker.topics import OfflinePartition, Topic
from semel.controller.metadata_log import TOPIC as METADATA_TOPIC
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def handle(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[None, None, MetadataResponse]:
    missing = _to_create(broker, request, context)
    if missing:
        return _after_creation(broker, request, context, missing)
    return _answer(broker, request, context, {})


def _wants_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.version == 0 and not request.topics)


def _to_create(broker: Broker, request: MetadataRequest, context: RequestContext) -> list[str]:
    if request.topics is None or not broker.config.bool("auto.create.topics.enable"):
        return []
    if context.version >= 4 and not request.allow_auto_topic_creation:
        return []
    return [
        topic.name
        for topic in request.topics
        if topic.name and topic.name not in broker.topics.by_name and topic.name != METADATA_TOPIC
    ]


async def _after_creation(
    broker: Broker, request: MetadataRequest, context: RequestContext, missing: list[str]
) -> MetadataResponse:
    refused: dict[str, ErrorCode] = {}
    created: list[asyncio.Future[None]] = []
    may_create_any = context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    for name in missing:
        try:
            context.authorise_topic(Operation.DESCRIBE, name)
            if not may_create_any:
                context.authorise_topic(Operation.CREATE, name)
            committed = broker.controller.create_topic(new_topic(broker, name)).committed
        except Refused as refusal:
            if refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                refused[name] = refusal.code
                continue
            # Somebody else asked for it a moment ago: it is there when what is decided by now is committed.
            committed = broker.metadata.when_committed()
        if committed is not None:
            created.append(committed)
    if created:
        await asyncio.wait(created)
    return _answer(broker, request, context, refused)


def _answer(
    broker: Broker, request: MetadataRequest, context: RequestContext, refused: dict[str, ErrorCode]
) -> MetadataResponse:
    topics: list[MetadataResponseTopic] = []
    if _wants_all(request, context):
        topics = [
            _described(broker, topic, request, context)
            for topic in broker.topics.by_name.values()
            if context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        for wanted in request.topics or ():
            if wanted.name is None or (not wanted.name and wanted.topic_id != NO_UUID):
                topics.append(_by_id(broker, wanted.topic_id, request, context))
            else:
                topics.append(_by_name(broker, wanted.name, request, context, refused))
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id,
                host=broker.advertised_host,
                port=broker.advertised_port,
                rack=broker.config.text("broker.rack"),
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = 0
        if context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            response.cluster_authorized_operations = authorised_bits(
                broker.authoriser, context.principal, ResourceType.CLUSTER, CLUSTER_NAME
            )
    return response


def _by_name(
    broker: Broker, name: str, request: MetadataRequest, context: RequestContext, refused: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    # Before it is looked up: who may not see it is not told either whether it is there.
    if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    topic = broker.topics.by_name.get(name)
    if topic is None:
        return MetadataResponseTopic(error_code=refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name=name)
    return _described(broker, topic, request, context)


def _by_id(broker: Broker, topic_id: bytes, request: MetadataRequest, context: RequestContext) -> MetadataResponseTopic:
    # Before version 12 the name cannot be null.
    name = None if context.version >= 12 else ""
    topic = broker.topics.by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=topic_id)
    if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id)
    return _described(broker, topic, request, context)


def _described(
    broker: Broker, topic: Topic, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(broker, topic, index) for index in topic.partitions],
    )
    if request.include_topic_authorized_operations:
        described.topic_authorized_operations = authorised_bits(
            broker.authoriser, context.principal, ResourceType.TOPIC, topic.name
        )
    return described


def _partition(broker: Broker, topic: Topic, index: int) -> MetadataResponsePartition:
    partition = topic.partitions[index]
    if isinstance(partition, OfflinePartition):
        return MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=-1,
            replica_nodes=[broker.node_id],
            offline_replicas=[broker.node_id],
        )
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=broker.node_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=[broker.node_id],
        isr_nodes=[broker.node_id],
    )
