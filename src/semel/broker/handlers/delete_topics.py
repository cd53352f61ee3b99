"""DeleteTopics (20), versions 1-6: by name, and from version 6 on by id; answered when all of them are committed.

Left out: timeouts, because the answer comes as soon as the one node of the cluster has flushed the decision.
"""

from __future__ import annotations

from collections import Counter

from semel.broker.authoriser import Operation
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.controller_channel import AdminChannel
from semel.controller.image import TopicState
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_STATES_SINCE = 6
_DELETION_DISABLED_SINCE = 3


async def handle(
    request: DeleteTopicsRequest,
    context: RequestContext,
    *,
    controller: AdminChannel,
    cluster: ClusterView,
    slices: Slices,
) -> DeleteTopicsResponse:
    wanted = list(request.topics)
    if context.version < _STATES_SINCE:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    results: list[DeletableTopicResult] = []
    found: list[tuple[DeletableTopicResult, TopicState]] = []
    named = Counter((topic.name, topic.topic_id) for topic in wanted)
    for (name, topic_id), times in named.items():
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        results.append(result)
        try:
            _check_form(name, topic_id, times)
            found.append((result, _authorised(cluster, context, name, topic_id)))
        except Refused as refusal:
            _refuse(result, refusal, context)
        if slices.step():
            await slices.next()
    deleted = await controller.delete_topics([topic.topic_id for _, topic in found])
    for (result, topic), refused in zip(found, deleted, strict=True):
        if refused is not None and refused.code == ErrorCode.UNKNOWN_TOPIC_ID and result.name is not None:
            refused = _unknown(result.name)  # somebody else was quicker
        elif refused is None or refused.code != ErrorCode.UNKNOWN_TOPIC_ID:
            result.name, result.topic_id = topic.name, topic.topic_id
        if refused is not None:
            _refuse(result, refused, context)
    return DeleteTopicsResponse(responses=results)


def _check_form(name: str | None, topic_id: bytes, times: int) -> None:
    if (name is None) == (topic_id == NO_UUID):
        raise Refused(ErrorCode.INVALID_REQUEST, "a topic is named either by its name or by its id")
    if times > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, f"a topic is named {times} times")


def _authorised(cluster: ClusterView, context: RequestContext, name: str | None, topic_id: bytes) -> TopicState:
    image = cluster.image
    if name is None:
        topic = cluster.topic_of_id(topic_id)
        context.authorise_topic(Operation.DELETE, topic.name)
        return topic
    # Before it is looked up: who may not delete it is not told either whether it is there.
    context.authorise_topic(Operation.DELETE, name)
    if name not in image.topics:
        raise _unknown(name)
    return image.topics[name]


def _unknown(name: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def _refuse(result: DeletableTopicResult, refusal: Refused, context: RequestContext) -> None:
    code = refusal.code
    if code == ErrorCode.TOPIC_DELETION_DISABLED and context.version < _DELETION_DISABLED_SINCE:
        code = ErrorCode.INVALID_REQUEST
    result.error_code, result.error_message = code, refusal.text
