"""Produce (0), versions 3-13: writes batches, each partition on its own.

Not served yet: transactional produce. It is refused per partition, because nobody could end the transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.router import Committing
from semel.log.errors import Refused
from semel.log.validate import Validated
from semel.records.compression import Codec
from semel.replication.partition import Partition
from semel.rpc.served import CloseConnection
from semel.wire.errors import ErrorCode
from semel.wire.spec.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_ACKS_ALL, _ACKS_LEADER, _ACKS_NONE = -1, 1, 0
_ATTRIBUTES_AT = 22
_CODEC_BITS = 7
_TRANSACTIONAL_BIT = 16
_ZSTD_SINCE = 7
_TOPIC_IDS_SINCE = 13
# A compressed batch from this size on is opened away from the loop.
_OPEN_ELSEWHERE_BYTES = 128 << 10


def handle(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Committing | Coroutine[None, None, ProduceResponse | None] | None:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and len(data.records) >= _OPEN_ELSEWHERE_BYTES and _codec(data.records):
                return _open_elsewhere(broker, request, context)
    waits_for: list[asyncio.Future[None]] = []
    response = _produce(broker, request, context, waits_for)
    if request.acks == _ACKS_NONE:
        return None
    return Committing(response, waits_for) if waits_for else response


def _codec(records: memoryview) -> int:
    return records[_ATTRIBUTES_AT] & _CODEC_BITS if len(records) > _ATTRIBUTES_AT else 0


async def _open_elsewhere(broker: Broker, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Large compressed batches are judged in a thread first. The connection waits meanwhile, so its order is kept."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                partition = broker.topics.partition(_name(broker, topic, context), data.index)
                data.records = await broker.host.jobs.run_in_thread(partition.validate, data.records)
            except Refused as refusal:
                data.records = refusal
    waits_for: list[asyncio.Future[None]] = []
    response = _produce(broker, request, context, waits_for)
    if request.acks == _ACKS_NONE:
        return None
    if waits_for:
        await asyncio.gather(*waits_for)
    return response


def _produce(
    broker: Broker, request: ProduceRequest, context: RequestContext, waits_for: list[asyncio.Future[None]]
) -> ProduceResponse:
    responses = []
    for topic in request.topic_data:
        results = [_append(broker, request, context, topic, data, waits_for) for data in topic.partition_data]
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
    return ProduceResponse(responses=responses)


def _append(
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
    topic: TopicProduceData,
    data: PartitionProduceData,
    waits_for: list[asyncio.Future[None]],
) -> PartitionProduceResponse:
    partition: Partition | None = None
    try:
        name = _name(broker, topic, context)
        context.authorise_topic(Operation.WRITE, name)
        _check_request(request, context, data)
        partition = broker.topics.partition(name, data.index)
        records = data.records
        batch = records if isinstance(records, Validated) else partition.validate(records or b"")
        appended = partition.append(batch, request.acks)
    except Refused as refusal:
        if request.acks == _ACKS_NONE:
            # Nobody reads an answer: losing the connection is the only way to say that something went wrong.
            raise CloseConnection(f"produce with acks=0 failed: {refusal}") from refusal
        return PartitionProduceResponse(
            index=data.index,
            error_code=refusal.code,
            base_offset=-1,
            log_start_offset=-1 if partition is None else partition.log.start_offset,
            error_message=refusal.text,
        )
    if request.acks == _ACKS_ALL:
        committed = partition.when_committed(appended.last_offset)
        if committed is not None:
            waits_for.append(committed)
    return PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time_ms,
        log_start_offset=partition.log.start_offset,
    )


def _name(broker: Broker, topic: TopicProduceData, context: RequestContext) -> str:
    if context.version >= _TOPIC_IDS_SINCE:
        return broker.topics.topic_of_id(topic.topic_id).name
    return topic.name


def _check_request(request: ProduceRequest, context: RequestContext, data: PartitionProduceData) -> None:
    """What is wrong with the request as a whole is answered for each of its partitions."""
    if request.acks not in (_ACKS_ALL, _ACKS_LEADER, _ACKS_NONE):
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}, it can be -1, 0 or 1")
    if isinstance(data.records, Refused):
        raise data.records
    if isinstance(data.records, Validated):
        return
    if data.records is None:
        raise Refused(ErrorCode.INVALID_RECORD, "there are no records for this partition")
    if context.version < _ZSTD_SINCE and _codec(data.records) == Codec.ZSTD:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {_ZSTD_SINCE} or later, not {context.version}"
        )
    if request.transactional_id is not None:
        context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    if len(data.records) > _ATTRIBUTES_AT and data.records[_ATTRIBUTES_AT] & _TRANSACTIONAL_BIT:
        raise Refused(ErrorCode.INVALID_TXN_STATE, "transactions are not served by this version of semel")
