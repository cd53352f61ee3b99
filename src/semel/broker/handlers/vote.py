"""Vote (52), versions 0-2: a voter of the metadata log wants to lead it, or would like to know whether it could."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.handlers.quorum_partition import check_cluster, leader_endpoints, the_partition
from semel.broker.node_info import NodeInfo
from semel.log.errors import Refused
from semel.quorum.election import VoteQuestion
from semel.quorum.metadata_topic import PARTITION, TOPIC
from semel.quorum.owner import LogReplica, Voting
from semel.quorum.voters import ReplicaKey
from semel.wire.spec.vote import (
    NodeEndpoint,
    VoteRequest,
    VoteResponse,
    VoteResponsePartition,
    VoteResponseTopic,
)

_VOTER_SINCE = 1


def handle(
    request: VoteRequest, context: RequestContext, *, node: NodeInfo, replica: LogReplica, voting: Voting
) -> VoteResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
        check_cluster(request.cluster_id, node.cluster_id)
        asked = the_partition(request.topics)
    except Refused as refusal:
        return VoteResponse(error_code=refusal.code)
    question = VoteQuestion(
        asked.replica_epoch,
        ReplicaKey(asked.replica_id, asked.replica_directory_id),
        asked.last_offset,
        asked.last_offset_epoch,
        asked.pre_vote,
        ReplicaKey(request.voter_id, asked.voter_directory_id) if context.version >= _VOTER_SINCE else None,
    )
    partition = VoteResponsePartition(partition_index=PARTITION)
    try:
        answer = voting.asked_for_vote(question)
        partition.error_code, partition.vote_granted = answer.code, answer.is_granted
    except Refused as refusal:
        partition.error_code = refusal.code
    partition.leader_id, partition.leader_epoch = replica.told_leader()
    return VoteResponse(
        topics=[VoteResponseTopic(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=leader_endpoints(replica, context.listener, NodeEndpoint),
    )
