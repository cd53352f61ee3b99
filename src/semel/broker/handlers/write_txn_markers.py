"""WriteTxnMarkers (27), versions 1-2: ends transactions in partitions, for other coordinators and for an administrator
who ends one that hangs."""

from __future__ import annotations

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


async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext, *, markers: LocalMarkers, slices: Slices
) -> WriteTxnMarkersResponse:
    results = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            for index in dict.fromkeys(topic.partition_indexes):
                code = await _write(markers, context, marker, topic.name, index)
                partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
                if slices.step():
                    await slices.next()
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=results)


async def _write(
    markers: LocalMarkers, context: RequestContext, marker: WritableTxnMarker, topic: str, index: int
) -> ErrorCode:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
        commit = markers.write_marker(
            (topic, index),
            ControlType.COMMIT if marker.transaction_result else ControlType.ABORT,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_version >= _SECOND_GENERATION,
        )
        if commit is not None:
            await commit
    except Refused as refusal:
        return refusal.code
    return ErrorCode.NONE
