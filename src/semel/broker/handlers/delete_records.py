"""DeleteRecords (21), versions 0-2: takes the records below an offset away; -1 stands for the high watermark.

The new start of the log is on disk before the answer. The segments that lie below it go with the next retention check.
Left out: timeouts, because there is no other replica to wait for.
"""

from __future__ import annotations

from collections.abc import Callable

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.internal_topic_rules import refuse_if_internal
from semel.broker.topics import Topics
from semel.host.descriptors import is_short
from semel.log.errors import Refused
from semel.log.store import LogStore
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
    on_broken: Callable[[BaseException], None],
) -> DeleteRecordsResponse:
    results = [
        DeleteRecordsTopicResult(
            name=topic.name, partitions=[_deleted(topics, context, topic.name, wanted) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    if any(result.error_code == ErrorCode.NONE for topic in results for result in topic.partitions):
        try:
            await store.checkpoint_starts()
        except OSError as error:
            if is_short(error):
                return _refused(request, ErrorCode.KAFKA_STORAGE_ERROR)
            # Readers are refused already what the disk still holds: this cannot be taken back.
            on_broken(error)
            raise
    return DeleteRecordsResponse(topics=results)


def _refused(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """Nothing could be noted, for want of a descriptor; the next checkpoint notes it."""
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                DeleteRecordsPartitionResult(
                    partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK, error_code=code
                )
                for wanted in topic.partitions
            ],
        )
        for topic in request.topics
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
