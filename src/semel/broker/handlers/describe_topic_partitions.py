"""DescribeTopicPartitions (75), version 0: topics and their partitions in order of name, page by page.

A page holds as many partitions as the request and `max.request.partition.size.limit` allow, at least one; the cursor
of the answer names the first that did not fit.
"""

from __future__ import annotations

from functools import partial

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.node_info import NodeInfo
from semel.broker.topics import Topics
from semel.controller.image import TopicState
from semel.controller.topic_names import wrong_with_name
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.lazy import lazily
from semel.wire.spec.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


async def handle(
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
    *,
    node: NodeInfo,
    cluster: ClusterView,
    topics: Topics,
    slices: Slices,
) -> DescribeTopicPartitionsResponse:
    named = sorted({topic.name for topic in request.topics})
    cursor = request.cursor or Cursor()
    if cursor.partition_index < 0 or (named and request.cursor is not None and cursor.topic_name not in named):
        # A cursor that no page of this request could have returned; there is no other place to say so.
        return DescribeTopicPartitionsResponse(topics=[_refused(name, ErrorCode.INVALID_REQUEST) for name in named])
    page = _Page(node, cluster, topics, context, request.response_partition_limit)
    denied = []
    for name in named or sorted(cluster.image.topics):
        if name < cursor.topic_name:
            continue
        if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            # Who asks for everything gets what it may see; who asks by name is not told whether it is there.
            if named:
                denied.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif page.next_cursor is None:
            page.add(name, cursor.partition_index if name == cursor.topic_name else 0)
        elif not named:
            break
        if slices.step():
            await slices.next()
    return DescribeTopicPartitionsResponse(topics=page.topics + denied, next_cursor=page.next_cursor)


class _Page:
    """Filled topic by topic until it has no room for another partition."""

    def __init__(
        self, node: NodeInfo, cluster: ClusterView, topics: Topics, context: RequestContext, limit: int
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._context = context
        self._reachable = cluster.endpoints(context.listener)
        self._left = max(1, min(limit, node.config.int("max.request.partition.size.limit")))
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: Cursor | None = None

    def add(self, name: str, first: int) -> None:
        if not self._left:
            self.next_cursor = Cursor(topic_name=name, partition_index=first)
            return
        topic = self._cluster.image.topics.get(name)
        if topic is None:
            wrong = wrong_with_name(name, ())
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if wrong is None else ErrorCode.INVALID_TOPIC_EXCEPTION
            self.topics.append(_refused(name, code))
            return
        after = min(len(topic.partitions), first + self._left)
        self._left -= max(0, after - first)
        if after < len(topic.partitions):
            self.next_cursor = Cursor(topic_name=name, partition_index=after)
        self.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=lazily(partial(self._partition, topic), range(first, after)),
                topic_authorized_operations=self._context.authorised_bits(ResourceType.TOPIC, name),
            )
        )

    def _partition(self, topic: TopicState, index: int) -> DescribeTopicPartitionsResponsePartition:
        offline_node = self._topics.offline_node(topic.name, index)
        view = self._cluster.view(topic.partitions[index], self._reachable, offline_node)
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE if view.error else ErrorCode.NONE,
            partition_index=index,
            leader_id=view.leader_id,
            leader_epoch=view.state.leader_epoch,
            replica_nodes=view.state.replicas,
            isr_nodes=view.state.isr,
            offline_replicas=view.offline_replicas,
            eligible_leader_replicas=view.state.elr,  # empty, not null: Kafka's own admin client cannot read null
            last_known_elr=view.state.last_known_elr,
        )


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(name=name, error_code=code)
