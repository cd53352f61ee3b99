"""ListOffsets (2), versions 1-11: offsets by time, and the ends of the log as the reader's isolation sees them.

Right after an election a leader does not know how far the partition is committed: what the one before has told may be
more. Then it does not tell an end that readers have passed already.

Who gives DEBUGGING as its replica id is told the ends of the log that is here, whoever leads it: so tools can see how
far a follower is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.named_once import first_by_name
from semel.broker.read_failures import ReadFailures
from semel.broker.topics import Topics
from semel.config import ListenerKind
from semel.log.errors import CorruptSegment, Refused
from semel.log.log import Log, TimestampOffset
from semel.log.types import Offset
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode
from semel.wire.lazy import lazily
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_READ_COMMITTED = 1
_NOT_AVAILABLE_SINCE = 5
DEBUGGING = -2


def handle(
    request: ListOffsetsRequest,
    context: RequestContext,
    *,
    listeners: Mapping[str, ListenerKind],
    topics: Topics,
    read_failures: ReadFailures,
) -> ListOffsetsResponse:
    wanted = first_by_name(
        (topic.name, ((one.partition_index, one) for one in topic.partitions)) for topic in request.topics
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name,
                partitions=lazily(partial(_listed, topics, read_failures, request, context, listeners, name), asked),
            )
            for name, asked in wanted.items()
        ]
    )


def _listed(
    topics: Topics,
    read_failures: ReadFailures,
    request: ListOffsetsRequest,
    context: RequestContext,
    listeners: Mapping[str, ListenerKind],
    topic: str,
    wanted: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    try:
        is_follower = request.replica_id >= 0
        if is_follower:
            context.authorise_node(listeners)
        else:
            context.authorise_topic(Operation.DESCRIBE, topic)
        if request.replica_id == DEBUGGING and wanted.timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
            found = _end_of(topics.log(topic, wanted.partition_index), wanted.timestamp)
        else:
            partition = topics.partition(topic, wanted.partition_index)
            partition.check_epoch(wanted.current_leader_epoch)
            end = partition.log.end_offset if is_follower else _readable(partition, request.isolation_level)
            try:
                found = _find(partition, wanted.timestamp, end)
            except CorruptSegment as damage:
                read_failures.damaged(damage, partition)
                raise Refused(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
            if not is_follower and wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL) and not partition.knows_end:
                _check_known(found, end, partition, context.version)
    except Refused as refusal:
        answer.error_code = refusal.code
    else:
        if found is not None:
            answer.timestamp, answer.offset, answer.leader_epoch = found
    return answer


def _end_of(log: Log, which: int) -> TimestampOffset | None:
    offset = log.end_offset if which == LATEST else log.start_offset
    return TimestampOffset(-1, offset, log.epochs.epoch_at(offset))


def _readable(partition: Partition, isolation_level: int) -> Offset:
    log = partition.log
    return log.last_stable_offset if isolation_level == _READ_COMMITTED else log.high_watermark


def _check_known(found: TimestampOffset | None, end: Offset, partition: Partition, version: int) -> None:
    if found is None or found.offset >= end:
        code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= _NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
        raise Refused(code, f"leader epoch {partition.leader_epoch} has only begun: what is committed is not known yet")


def _find(partition: Partition, timestamp_ms: int, end: Offset) -> TimestampOffset | None:
    log = partition.log
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
