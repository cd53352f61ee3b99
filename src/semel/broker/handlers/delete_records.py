"""DeleteRecords (21), versions 0-2: takes the records below an offset away; -1 stands for the high watermark.

The new start of the log is on disk before the answer, here and on the followers that are alive: they are waited for, as
long as the request says. The segments that lie below it go with the next retention check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.named_once import first_by_name
from semel.broker.internal_topic_rules import refuse_if_internal
from semel.broker.topics import Topics
from semel.host.descriptors import is_short
from semel.log.errors import Refused
from semel.log.store import LogStore
from semel.replication.replicas import Replicas
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_NO_LOW_WATERMARK = -1


async def handle(
    request: DeleteRecordsRequest,
    context: RequestContext,
    *,
    topics: Topics,
    store: LogStore,
    slices: Slices,
    on_broken: Callable[[BaseException], None],
) -> DeleteRecordsResponse:
    results: list[DeleteRecordsTopicResult] = []
    for name, asked in _wanted(request).items():
        partitions: list[DeleteRecordsPartitionResult] = []
        results.append(DeleteRecordsTopicResult(name=name, partitions=partitions))
        for wanted in asked:
            partitions.append(_deleted(topics, context, name, wanted))
            if slices.step():
                await slices.next()
    if any(result.error_code == ErrorCode.NONE for topic in results for result in topic.partitions):
        try:
            await store.checkpoint_starts()
        except OSError as error:
            if is_short(error):
                return _refused(request, ErrorCode.KAFKA_STORAGE_ERROR)
            # Readers are refused already what the disk still holds: this cannot be taken back.
            on_broken(error)
            raise
        await _when_everywhere(results, topics, request.timeout_ms)
    return DeleteRecordsResponse(topics=results)


async def _when_everywhere(results: list[DeleteRecordsTopicResult], topics: Topics, timeout_ms: int) -> None:
    """Waits until no follower that is alive has what is deleted, and tells where the logs begin then."""
    waiting: list[tuple[DeleteRecordsPartitionResult, Replicas, asyncio.Future[None]]] = []
    for topic in results:
        for result in topic.partitions:
            if result.error_code:
                continue
            try:
                replicas = topics.partition(topic.name, result.partition_index).replicas
            except Refused as refusal:
                result.error_code = refusal.code
                continue
            reached = None if replicas is None else replicas.when_begins_at(result.low_watermark)
            if replicas is not None and reached is not None:
                waiting.append((result, replicas, reached))
    if not waiting:
        return
    await asyncio.wait([reached for _, _, reached in waiting], timeout=max(timeout_ms, 0) / 1000)
    for result, replicas, reached in waiting:
        error = reached.exception() if reached.done() else Refused(ErrorCode.REQUEST_TIMED_OUT, "a follower lags")
        if isinstance(error, Refused):
            result.error_code = error.code
        elif error is not None:
            raise error
        reached.cancel()
        result.low_watermark = replicas.low_watermark


def _wanted(request: DeleteRecordsRequest) -> dict[str, list[DeleteRecordsPartition]]:
    return first_by_name(
        (topic.name, ((one.partition_index, one) for one in topic.partitions)) for topic in request.topics
    )


def _refused(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """Nothing could be noted, for want of a descriptor; the next checkpoint notes it."""
    topics = [
        DeleteRecordsTopicResult(
            name=name,
            partitions=[
                DeleteRecordsPartitionResult(
                    partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK, error_code=code
                )
                for wanted in asked
            ],
        )
        for name, asked in _wanted(request).items()
    ]
    return DeleteRecordsResponse(topics=topics)


def _deleted(
    topics: Topics, context: RequestContext, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK)
    try:
        context.authorise_topic(Operation.DELETE, topic)
        partition = topics.partition(topic, wanted.partition_index)
        refuse_if_internal(topic, "cut")
        result.low_watermark = partition.delete_before(wanted.offset)
    except Refused as refusal:
        result.error_code = refusal.code
    return result
