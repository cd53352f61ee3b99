"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ended, for readers that check whether what they have
read is still there (KIP-320). Followers are told with their fetches, and need not ask.
"""

from __future__ import annotations

from functools import partial

from semel.broker.authoriser import CLUSTER_NAME, Operation, ResourceType
from semel.broker.context import RequestContext
from semel.broker.handlers.named_once import first_by_name
from semel.broker.topics import Topics
from semel.log.errors import Refused
from semel.wire.lazy import lazily
from semel.wire.spec.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext, *, topics: Topics
) -> OffsetForLeaderEpochResponse:
    is_node = context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    wanted = first_by_name(
        (topic.topic, ((one.partition, one) for one in topic.partitions)) for topic in request.topics
    )
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=name, partitions=lazily(partial(_ended, topics, context, name, is_node), asked)
            )
            for name, asked in wanted.items()
        ]
    )


def _ended(
    topics: Topics, context: RequestContext, topic: str, is_node: bool, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        if not is_node:
            context.authorise_topic(Operation.DESCRIBE, topic)
        partition = topics.partition(topic, wanted.partition)
        partition.check_epoch(wanted.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.epoch_end_offset(wanted.leader_epoch)
    except Refused as refusal:
        answer.error_code = refusal.code
    return answer
