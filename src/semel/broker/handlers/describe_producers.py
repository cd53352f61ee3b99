"""DescribeProducers (61), version 0: the producers that partitions remember, with their epochs and sequences."""

from __future__ import annotations

from functools import partial

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.named_once import by_name
from semel.broker.topics import Topics
from semel.log.errors import Refused
from semel.log.producers import entry_of
from semel.wire.lazy import lazily
from semel.wire.spec.describe_producers import (
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    ProducerState,
)


def handle(request: DescribeProducersRequest, context: RequestContext, *, topics: Topics) -> DescribeProducersResponse:
    wanted = by_name((topic.name, topic.partition_indexes) for topic in request.topics)
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResult(
                name=name, partitions=lazily(partial(_described, topics, context, name), indexes)
            )
            for name, indexes in wanted.items()
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
    result.active_producers = lazily(_state, list(producers.rows().values()))
    return result


def _state(row: bytes) -> ProducerState:
    entry = entry_of(row)
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
