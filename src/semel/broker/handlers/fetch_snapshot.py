"""FetchSnapshot (59), versions 0-1: a piece of a snapshot of the metadata, as bytes of its file."""

from __future__ import annotations

from collections.abc import Mapping

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.node_info import NodeInfo
from semel.config import NodeListener
from semel.controller.metadata_leader import MetadataLeader
from semel.log.errors import Refused
from semel.quorum.metadata_topic import PARTITION, TOPIC
from semel.quorum.snapshot_files import SnapshotId
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartition,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartition,
    FetchSnapshotResponseTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
)

_MOST_BYTES = 8 << 20


async def handle(
    request: FetchSnapshotRequest,
    context: RequestContext,
    *,
    node: NodeInfo,
    quorum: MetadataLeader,
    bound: Mapping[str, NodeListener],
) -> FetchSnapshotResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
        wanted = _checked(request, node.cluster_id)
    except Refused as refusal:
        return FetchSnapshotResponse(error_code=refusal.code)
    partition = FetchSnapshotResponsePartition(
        index=PARTITION,
        snapshot_id=wanted.snapshot_id,
        current_leader=LeaderIdAndEpoch(leader_id=quorum.node_id, leader_epoch=quorum.epoch),
        position=wanted.position,
    )
    try:
        quorum.check_epoch(wanted.current_leader_epoch)
        snapshot = SnapshotId(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
        most = min(request.max_bytes, _MOST_BYTES)
        piece = await quorum.snapshot_piece(snapshot, wanted.position, most)
        partition.size, partition.unaligned_records = piece.size_bytes, piece.records
    except Refused as refusal:
        partition.error_code = refusal.code
    listener = bound[context.listener]
    endpoint = NodeEndpoint(
        node_id=quorum.node_id, host=listener.advertised_host or listener.host, port=listener.advertised_port
    )
    return FetchSnapshotResponse(
        topics=[FetchSnapshotResponseTopic(name=TOPIC, partitions=[partition])], node_endpoints=[endpoint]
    )


def _checked(request: FetchSnapshotRequest, cluster_id: str) -> FetchSnapshotRequestPartition:
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {cluster_id}")
    if len(request.topics) == 1 and request.topics[0].name == TOPIC and len(request.topics[0].partitions) == 1:
        partition = request.topics[0].partitions[0]
        if partition.partition == PARTITION:
            return partition
    raise Refused(ErrorCode.INVALID_REQUEST, f"partition 0 of {TOPIC} is served here, and nothing else")
