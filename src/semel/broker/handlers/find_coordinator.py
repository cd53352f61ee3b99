"""FindCoordinator (10), versions 0-6: which node coordinates groups (type 0) or transactional ids (type 1).

The internal topic behind the coordinator is created when it is first asked for, so that the answer is always usable.
Left out: share groups (type 2).
"""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.internal_topics import InternalTopics
from semel.broker.topics import Topics
from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.primitives import coordinator_partition
from semel.wire.spec.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_MANY_SINCE = 4
_GROUP, _TRANSACTION = 0, 1
_KINDS = {
    _GROUP: (OFFSETS_TOPIC, ResourceType.GROUP),
    _TRANSACTION: (TRANSACTIONS_TOPIC, ResourceType.TRANSACTIONAL_ID),
}


async def handle(
    request: FindCoordinatorRequest,
    context: RequestContext,
    *,
    cluster: ClusterView,
    topics: Topics,
    internal_topics: InternalTopics,
    slices: Slices,
) -> FindCoordinatorResponse:
    if context.version >= _MANY_SINCE:
        found: list[Coordinator] = []
        for key in dict.fromkeys(request.coordinator_keys):
            found.append(await _find(cluster, topics, internal_topics, context, request.key_type, key))
            if slices.step():
                await slices.next()
        return FindCoordinatorResponse(coordinators=found)
    one = await _find(cluster, topics, internal_topics, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


async def _find(
    cluster: ClusterView,
    topics: Topics,
    internal_topics: InternalTopics,
    context: RequestContext,
    key_type: int,
    key: str,
) -> Coordinator:
    try:
        if key_type not in _KINDS:
            raise Refused(ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not known here")
        topic, resource = _KINDS[key_type]
        context.authorise(Operation.DESCRIBE, resource, key)
        await internal_topics.ensure(topic)
        index = coordinator_partition(key, cluster.partition_count(topic))
        reachable = cluster.endpoints(context.listener)
        view = cluster.view(cluster.partition(topic, index), reachable, topics.offline_node(topic, index))
        if view.error:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic}-{index} has no leader that can be reached")
    except Refused as refusal:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=refusal.code, error_message=refusal.text)
    leader = reachable[view.leader_id]
    return Coordinator(key=key, node_id=leader.node_id, host=leader.host, port=leader.port)
