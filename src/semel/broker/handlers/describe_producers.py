"""DescribeProducers (61), version 0: the producers that partitions remember, with their epochs and sequences."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.topics import Topics
from semel.log.errors import Refused
from semel.wire.spec.describe_producers import (
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    ProducerState,
)


def handle(request: DescribeProducersRequest, context: RequestContext, *, topics: Topics) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResult(
                name=topic.name,
                partitions=[_described(topics, context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _described(topics: Topics, context: RequestContext, topic: str, index: int) -> DescribeProducersPartitionResult:
    result = DescribeProducersPartitionResult(partition_index=index)
    try:
        context.authorise_topic(Operation.READ, topic)
        producers = topics.partition(topic, index).log.producers
    except Refused as refusal:
        result.error_code, result.error_message = refusal.code, refusal.text
        return result
    result.active_producers = [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for entry in producers.entries()
    ]
    return result
