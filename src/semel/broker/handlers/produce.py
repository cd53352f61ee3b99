"""Produce (0), versions 3-13: writes batches, each partition on its own; what transactions add is in
`broker/transactional_produce`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.handlers.transaction_errors import note_fenced
from semel.broker.router import Committing
from semel.broker.transactional_produce import explained, has_to_wait, join, verify
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.log.log import Appended
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
_ZSTD_SINCE = 7
_TOPIC_IDS_SINCE = 13
# A compressed batch from this size on is opened away from the loop.
_OPEN_ELSEWHERE_BYTES = 128 << 10


def handle(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Committing | Coroutine[None, None, ProduceResponse | None] | None:
    if request.transactional_id is not None and has_to_wait(broker, request.transactional_id, context.version):
        _keep_records(request)
        return _produce_later(broker, request, context)
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and len(data.records) >= _OPEN_ELSEWHERE_BYTES and _codec(data.records):
                _keep_records(request)
                return _produce_later(broker, request, context)
    waits_for: list[asyncio.Future[None]] = []
    response = _produce(broker, request, context, waits_for)
    if request.acks == _ACKS_NONE:
        return None
    return Committing(response, waits_for) if waits_for else response


def _codec(records: memoryview) -> int:
    return records[_ATTRIBUTES_AT] & _CODEC_BITS if len(records) > _ATTRIBUTES_AT else 0


def _keep_records(request: ProduceRequest) -> None:
    """A frame that came in one piece lies in the buffer that all connections read into: while this request waits for a
    thread, the next read would write over its records."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


async def _produce_later(broker: Broker, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Large compressed batches are judged in a thread first, and partitions join a transaction. The connection waits
    meanwhile, so its order is kept."""
    joining: dict[Identity, list[tuple[PartitionProduceData, Partition]]] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                partition = _target(broker, request, context, topic, data)
                batch = data.records = await _validated(broker, partition, data.records or b"")
                if batch.header.is_transactional:
                    claimed = Identity(batch.header.producer_id, batch.header.producer_epoch)
                    joining.setdefault(claimed, []).append((data, partition))
            except Refused as refusal:
                data.records = refusal
    if request.transactional_id is not None:
        for claimed, members in joining.items():
            places = [(partition.topic, partition.index) for _, partition in members]
            try:
                await join(broker, request.transactional_id, claimed, places, context.version)
            except Refused as refusal:
                for data, _ in members:
                    data.records = refusal
    waits_for: list[asyncio.Future[None]] = []
    response = _produce(broker, request, context, waits_for)
    if request.acks == _ACKS_NONE:
        return None
    if waits_for:
        await asyncio.gather(*waits_for)
    return response


async def _validated(broker: Broker, partition: Partition, records: memoryview | bytes) -> Validated:
    if len(records) >= _OPEN_ELSEWHERE_BYTES:
        return await broker.host.jobs.run_in_thread(partition.validate, records)
    return partition.validate(records)


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
        partition = _target(broker, request, context, topic, data)
        appended = _appended_as_it_is(request, partition, data.records)
        if appended is None:
            records = data.records
            batch = records if isinstance(records, Validated) else partition.validate(records or b"")
            if batch.header.is_transactional:
                verify(broker, request.transactional_id, batch.header, partition, context.version)
            appended = _appended(broker, request, context, partition, batch)
    except Refused as refusal:
        note_fenced(refusal)
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


def _appended_as_it_is(request: ProduceRequest, partition: Partition, records: object) -> Appended | None:
    """What most batches are is written in one step; None: it is to be looked at in detail."""
    if request.transactional_id is not None or not isinstance(records, memoryview) or records.readonly:
        return None
    ordinary = partition.ordinary_for(request.acks)
    base_offset = None if ordinary is None else partition.append_ordinary(records, ordinary)
    return None if base_offset is None else Appended(base_offset, partition.log.end_offset - 1)


def _appended(
    broker: Broker, request: ProduceRequest, context: RequestContext, partition: Partition, batch: Validated
) -> Appended:
    try:
        return partition.append(batch, request.acks)
    except Refused as refusal:
        if request.transactional_id is None:
            raise
        raise explained(broker, request.transactional_id, batch.header, context.version, refusal) from refusal


def _target(
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
    topic: TopicProduceData,
    data: PartitionProduceData,
) -> Partition:
    """Where a batch is to go, if it may go there."""
    name = _name(broker, topic, context)
    context.authorise_topic(Operation.WRITE, name)
    _check_request(request, context, data)
    if name in INTERNAL_TOPICS:
        # Its coordinator would not know of it until the next start.
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by its coordinator only")
    return broker.topics.partition(name, data.index)


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
