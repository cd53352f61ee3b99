"""BeginQuorumEpoch (53), versions 0-1: a leader of the metadata log says that it leads, and where it is."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.quorum_partition import check_cluster, leader_endpoints, the_partition
from semel.broker.node_info import NodeInfo
from semel.log.errors import Refused
from semel.peer.calls import HostPort
from semel.quorum.metadata_topic import PARTITION, TOPIC
from semel.quorum.owner import LogReplica, Voting
from semel.quorum.voters import ReplicaKey
from semel.wire.spec.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    BeginQuorumEpochResponsePartition,
    BeginQuorumEpochResponseTopic,
    NodeEndpoint,
)

_VOTER_SINCE = 1


def handle(
    request: BeginQuorumEpochRequest, context: RequestContext, *, node: NodeInfo, replica: LogReplica, voting: Voting
) -> BeginQuorumEpochResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
        check_cluster(request.cluster_id, node.cluster_id)
        told = the_partition(request.topics)
    except Refused as refusal:
        return BeginQuorumEpochResponse(error_code=refusal.code)
    try:
        asked = None
        if context.version >= _VOTER_SINCE:
            asked = ReplicaKey(request.voter_id, told.voter_directory_id)
        endpoints = {one.name: HostPort(one.host, one.port) for one in request.leader_endpoints}
        code = voting.epoch_begun(told.leader_epoch, told.leader_id, asked, endpoints.get(context.listener))
    except Refused as refusal:
        code = refusal.code
    leader_id, epoch = replica.told_leader()
    partition = BeginQuorumEpochResponsePartition(
        partition_index=PARTITION, error_code=code, leader_id=leader_id, leader_epoch=epoch
    )
    return BeginQuorumEpochResponse(
        topics=[BeginQuorumEpochResponseTopic(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=leader_endpoints(replica, context.listener, NodeEndpoint),
    )
