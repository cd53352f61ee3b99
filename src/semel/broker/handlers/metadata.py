"""Metadata (3), versions 0-13: nodes, topics, partitions and their leaders, as they are committed.

A topic that is missing is created when both the request and `auto.create.topics.enable` allow it; the answer waits for
it, so that the client need not ask again.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.controller_channel import ControllerChannel
from semel.broker.node_info import NodeInfo
from semel.broker.topics import Topics
from semel.controller.controller import NewTopic
from semel.controller.image import TopicState
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.log.errors import Refused
from semel.quorum.metadata_topic import TOPIC as METADATA_TOPIC
from semel.wire.errors import ErrorCode
from semel.wire.lazy import lazily
from semel.wire.schema import NO_UUID
from semel.wire.spec.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_LISTENER_NOT_FOUND_SINCE = 6


def handle(
    request: MetadataRequest,
    context: RequestContext,
    *,
    node: NodeInfo,
    cluster: ClusterView,
    topics: Topics,
    controller: ControllerChannel,
) -> MetadataResponse | Coroutine[None, None, MetadataResponse]:
    answer = _Answer(node, cluster, topics, request, context)
    missing = _to_create(node, cluster, request, context)
    if missing:
        return _after_creation(controller, answer, context, missing)
    return answer.response()


def _wants_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.version == 0 and not request.topics)


def _to_create(node: NodeInfo, cluster: ClusterView, request: MetadataRequest, context: RequestContext) -> list[str]:
    if request.topics is None or not node.config.bool("auto.create.topics.enable"):
        return []
    if context.version >= 4 and not request.allow_auto_topic_creation:
        return []
    known = cluster.image.topics
    named = dict.fromkeys(topic.name for topic in request.topics)
    return [name for name in named if name and name not in known and name != METADATA_TOPIC]


async def _after_creation(
    controller: ControllerChannel, answer: _Answer, context: RequestContext, missing: list[str]
) -> MetadataResponse:
    wanted: list[NewTopic] = []
    may_create_any = context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    for name in missing:
        try:
            context.authorise_topic(Operation.DESCRIBE, name)
            if not may_create_any:
                context.authorise_topic(Operation.CREATE, name)
            wanted.append(NewTopic(name))
        except Refused as refusal:
            answer.refused[name] = refusal.code
    for topic, made in zip(wanted, await controller.create_topics(wanted), strict=True):
        # One that somebody else asked for a moment ago is there now.
        if isinstance(made, Refused) and made.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            answer.refused[topic.name] = made.code
    return answer.response()


class _Answer:
    """The answer to one request, made from what is committed when `response` is called."""

    def __init__(
        self,
        node: NodeInfo,
        cluster: ClusterView,
        topics: Topics,
        request: MetadataRequest,
        context: RequestContext,
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._topics = topics
        self._request = request
        self._context = context
        # Why topics could not be created.
        self.refused: dict[str, ErrorCode] = {}

    def response(self) -> MetadataResponse:
        request, context = self._request, self._context
        endpoints = self._endpoints = self._cluster.endpoints(context.listener)
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=found.node_id, host=found.host, port=found.port, rack=found.rack)
                for found in endpoints.values()
            ],
            cluster_id=self._node.cluster_id,
            # Any broker takes what is for the controller.
            controller_id=self._node.node_id,
            topics=self._wanted(),
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = 0
            if context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
                response.cluster_authorized_operations = context.authorised_bits(ResourceType.CLUSTER, CLUSTER_NAME)
        return response

    def _wanted(self) -> list[MetadataResponseTopic]:
        request, context = self._request, self._context
        if _wants_all(request, context):
            visible = [
                topic
                for topic in self._cluster.image.topics.values()
                if context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            ]
            return lazily(self._described, visible)
        named = {(wanted.name, wanted.topic_id): wanted for wanted in request.topics or ()}
        return lazily(self._found, list(named.values()))

    def _found(self, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
        if wanted.name is None or (not wanted.name and wanted.topic_id != NO_UUID):
            return self._by_id(wanted.topic_id)
        return self._by_name(wanted.name)

    def _by_name(self, name: str) -> MetadataResponseTopic:
        # Before it is looked up: who may not see it is not told either whether it is there.
        if not self._context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        topic = self._cluster.image.topics.get(name)
        if topic is None:
            code = self.refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return MetadataResponseTopic(error_code=code, name=name)
        return self._described(topic)

    def _by_id(self, topic_id: bytes) -> MetadataResponseTopic:
        # Before version 12 the name cannot be null.
        name = None if self._context.version >= 12 else ""
        topic = self._cluster.image.topic_by_id(topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=topic_id)
        if not self._context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id)
        return self._described(topic)

    def _described(self, topic: TopicState) -> MetadataResponseTopic:
        described = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=lazily(partial(self._partition, topic), list(topic.partitions)),
        )
        if self._request.include_topic_authorized_operations:
            described.topic_authorized_operations = self._context.authorised_bits(ResourceType.TOPIC, topic.name)
        return described

    def _partition(self, topic: TopicState, index: int) -> MetadataResponsePartition:
        offline_node = self._topics.offline_node(topic.name, index)
        view = self._cluster.view(topic.partitions[index], self._endpoints, offline_node)
        error = view.error
        if error == ErrorCode.LISTENER_NOT_FOUND and self._context.version < _LISTENER_NOT_FOUND_SINCE:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=view.leader_id,
            leader_epoch=view.state.leader_epoch,
            replica_nodes=view.state.replicas,
            isr_nodes=view.state.isr,
            offline_replicas=view.offline_replicas,
        )
