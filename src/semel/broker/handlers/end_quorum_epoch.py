"""EndQuorumEpoch (54), versions 0-1: a leader of the metadata log leads no more, and says who should."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.quorum_partition import check_cluster, leader_endpoints, the_partition
from semel.broker.node_info import NodeInfo
from semel.log.errors import Refused
from semel.quorum.metadata_topic import PARTITION, TOPIC
from semel.quorum.owner import LogReplica, Voting
from semel.quorum.voters import ReplicaKey
from semel.wire.spec.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EndQuorumEpochResponsePartition,
    EndQuorumEpochResponseTopic,
    NodeEndpoint,
)


def handle(
    request: EndQuorumEpochRequest, context: RequestContext, *, node: NodeInfo, replica: LogReplica, voting: Voting
) -> EndQuorumEpochResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
        check_cluster(request.cluster_id, node.cluster_id)
        told = the_partition(request.topics)
    except Refused as refusal:
        return EndQuorumEpochResponse(error_code=refusal.code)
    try:
        preferred = [ReplicaKey(node_id) for node_id in told.preferred_successors]
        preferred += [ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in told.preferred_candidates]
        code = voting.epoch_ended(told.leader_epoch, told.leader_id, preferred)
    except Refused as refusal:
        code = refusal.code
    leader_id, epoch = replica.told_leader()
    partition = EndQuorumEpochResponsePartition(
        partition_index=PARTITION, error_code=code, leader_id=leader_id, leader_epoch=epoch
    )
    return EndQuorumEpochResponse(
        topics=[EndQuorumEpochResponseTopic(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=leader_endpoints(replica, context.listener, NodeEndpoint),
    )
