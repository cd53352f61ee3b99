"""FetchSnapshot (59), versions 0-1: a piece of a snapshot of the metadata, as bytes of its file."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.node_info import NodeInfo
from semel.log.errors import Refused
from semel.quorum.metadata_topic import PARTITION, TOPIC
from semel.quorum.owner import LogReplica
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
    replica: LogReplica,
) -> FetchSnapshotResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
        wanted = _checked(request, node.cluster_id)
    except Refused as refusal:
        return FetchSnapshotResponse(error_code=refusal.code)
    leader_id, epoch = replica.told_leader()
    partition = FetchSnapshotResponsePartition(
        index=PARTITION,
        snapshot_id=wanted.snapshot_id,
        current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        position=wanted.position,
    )
    try:
        term = replica.leading(wanted.current_leader_epoch)
        snapshot = SnapshotId(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
        most = min(request.max_bytes, _MOST_BYTES)
        piece = await term.snapshot_piece(snapshot, wanted.position, most)
        partition.size, partition.unaligned_records = piece.size_bytes, piece.records
    except Refused as refusal:
        partition.error_code = refusal.code
    found = replica.leader_endpoint(context.listener)
    endpoints = [] if found is None else [NodeEndpoint(node_id=found[0], host=found[1].host, port=found[1].port)]
    return FetchSnapshotResponse(
        topics=[FetchSnapshotResponseTopic(name=TOPIC, partitions=[partition])], node_endpoints=endpoints
    )


def _checked(request: FetchSnapshotRequest, cluster_id: str) -> FetchSnapshotRequestPartition:
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {cluster_id}")
    if len(request.topics) == 1 and request.topics[0].name == TOPIC and len(request.topics[0].partitions) == 1:
        partition = request.topics[0].partitions[0]
        if partition.partition == PARTITION:
            return partition
    raise Refused(ErrorCode.INVALID_REQUEST, f"partition 0 of {TOPIC} is served here, and nothing else")
