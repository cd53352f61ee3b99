"""WriteTxnMarkers (27), versions 1-2: ends transactions in partitions, for coordinators on other nodes and for an
administrator who ends one that hangs.

All markers of a request are written before the first is waited for. The answer says of each whether it is on enough
replicas. It says nothing but what a coordinator of Kafka understands: any other code would end that node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.markers import LocalMarkers
from semel.log.errors import Refused
from semel.records.control import ControlType
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_SECOND_GENERATION = 2
# For replicas of one partition others wait as well: whoever sent the markers sends again those that are not done.
_LONGEST_WAIT_MS = 5000
_UNDERSTOOD = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)

_Waiting = list[tuple[asyncio.Future[None], WritableTxnMarkerPartitionResult]]


async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext, *, markers: LocalMarkers, slices: Slices
) -> WriteTxnMarkersResponse:
    waiting: _Waiting = []
    results = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            for index in dict.fromkeys(topic.partition_indexes):
                partitions.append(_written(markers, context, marker, topic.name, index, waiting))
                if slices.step():
                    await slices.next()
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    if waiting:
        await asyncio.wait([committed for committed, _ in waiting])
        for result, refusal in _refusals(waiting):
            result.error_code = _understood(refusal)
    return WriteTxnMarkersResponse(markers=results)


def _written(
    markers: LocalMarkers,
    context: RequestContext,
    marker: WritableTxnMarker,
    topic: str,
    index: int,
    waiting: _Waiting,
) -> WritableTxnMarkerPartitionResult:
    result = WritableTxnMarkerPartitionResult(partition_index=index)
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
        markers.check_sender(context.client_id, context.connection.number)
        committed = markers.write_marker(
            (topic, index),
            ControlType.COMMIT if marker.transaction_result else ControlType.ABORT,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_version >= _SECOND_GENERATION,
            _LONGEST_WAIT_MS,
        )
        if committed is not None:
            waiting.append((committed, result))
    except Refused as refusal:
        result.error_code = _understood(refusal)
    return result


def _refusals(waiting: _Waiting) -> Iterator[tuple[WritableTxnMarkerPartitionResult, Refused]]:
    for committed, result in waiting:
        error = committed.exception()
        if isinstance(error, Refused):
            yield result, error
        elif error is not None:
            raise error


def _understood(refusal: Refused) -> ErrorCode:
    return refusal.code if refusal.code in _UNDERSTOOD else ErrorCode.NOT_LEADER_OR_FOLLOWER
