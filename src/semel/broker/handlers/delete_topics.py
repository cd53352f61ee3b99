"""DeleteTopics (20), versions 1-6: by name, and from version 6 on by id; answered when all of them are committed.

Left out: timeouts, because the answer comes as soon as the one node of the cluster has flushed the decision.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from semel.broker.authoriser import Operation
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.internal_topics import refuse_if_internal
from semel.controller.image import TopicState
from semel.log.errors import Refused
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


async def handle(broker: Broker, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    wanted = list(request.topics)
    if context.version < _STATES_SINCE:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    results: list[DeletableTopicResult] = []
    waits_for: list[asyncio.Future[None]] = []
    named = Counter((topic.name, topic.topic_id) for topic in wanted)
    for (name, topic_id), times in named.items():
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        try:
            _check_form(name, topic_id, times)
            topic = _authorised(broker, context, name, topic_id)
            result.name, result.topic_id = topic.name, topic.topic_id
            refuse_if_internal(topic.name, "deleted")
            waits_for.append(broker.controller.delete_topic(topic))
        except Refused as refusal:
            result.error_code, result.error_message = _understood(refusal.code, context.version), refusal.text
        results.append(result)
    if waits_for:
        await asyncio.gather(*waits_for)
    return DeleteTopicsResponse(responses=results)


def _check_form(name: str | None, topic_id: bytes, times: int) -> None:
    if (name is None) == (topic_id == NO_UUID):
        raise Refused(ErrorCode.INVALID_REQUEST, "a topic is named either by its name or by its id")
    if times > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, f"a topic is named {times} times")


def _authorised(broker: Broker, context: RequestContext, name: str | None, topic_id: bytes) -> TopicState:
    """What is decided counts, not what is committed: a topic that somebody deletes just now is not there any more."""
    decided = broker.metadata.decided
    if name is None:
        topic = decided.topic_by_id(topic_id)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id.hex()}")
        context.authorise_topic(Operation.DELETE, topic.name)
        return topic
    # Before it is looked up: who may not delete it is not told either whether it is there.
    context.authorise_topic(Operation.DELETE, name)
    topic = decided.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def _understood(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.TOPIC_DELETION_DISABLED and version < _DELETION_DISABLED_SINCE:
        return ErrorCode.INVALID_REQUEST
    return code
