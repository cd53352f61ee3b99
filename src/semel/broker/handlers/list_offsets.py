"""ListOffsets (2), versions 1-11: offsets by time, and the ends of the log as the reader's isolation sees them.

Who gives DEBUGGING as its replica id is told the ends of the log that is here, whoever leads it: so tools can see how
far a follower is.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.read_failures import ReadFailures
from semel.broker.topics import Topics
from semel.log.errors import CorruptSegment, Refused
from semel.log.log import Log, TimestampOffset
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_READ_COMMITTED = 1
DEBUGGING = -2


def handle(
    request: ListOffsetsRequest, context: RequestContext, *, topics: Topics, read_failures: ReadFailures
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _listed(topics, read_failures, request, context, topic.name, wanted) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _listed(
    topics: Topics,
    read_failures: ReadFailures,
    request: ListOffsetsRequest,
    context: RequestContext,
    topic: str,
    wanted: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    try:
        context.authorise_topic(Operation.DESCRIBE, topic)
        if request.replica_id == DEBUGGING and wanted.timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
            found = _end_of(topics.log(topic, wanted.partition_index), wanted.timestamp)
        else:
            partition = topics.partition(topic, wanted.partition_index)
            partition.check_epoch(wanted.current_leader_epoch)
            found = _find(partition, wanted.timestamp, request.isolation_level == _READ_COMMITTED)
    except Refused as refusal:
        answer.error_code = refusal.code
    except CorruptSegment as damage:
        read_failures.damaged(damage)
        answer.error_code = ErrorCode.CORRUPT_MESSAGE
    else:
        if found is not None:
            answer.timestamp, answer.offset, answer.leader_epoch = found
    return answer


def _end_of(log: Log, which: int) -> TimestampOffset | None:
    offset = log.end_offset if which == LATEST else log.start_offset
    return TimestampOffset(-1, offset, log.epochs.epoch_at(offset))


def _find(partition: Partition, timestamp_ms: int, read_committed: bool) -> TimestampOffset | None:
    log = partition.log
    end = log.last_stable_offset if read_committed else log.high_watermark
    if timestamp_ms == LATEST:
        return TimestampOffset(-1, end, partition.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, log.start_offset, log.epochs.epoch_at(log.start_offset))
    if timestamp_ms == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp()
        return found if found is not None and found.offset < end else None
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None
    if timestamp_ms < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{timestamp_ms} is neither a time nor a known special value")
    return partition.offset_for_timestamp(timestamp_ms, end)
