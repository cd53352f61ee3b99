"""DescribeQuorum (55), versions 0-2: who leads the metadata log, who votes, who follows, and how far each has come."""

from __future__ import annotations

from collections.abc import Mapping

from semel.broker.authoriser import Operation
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.node_info import NodeInfo
from semel.config import ListenerKind, NodeListener
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.quorum.metadata_topic import PARTITION, TOPIC
from semel.quorum.owner import LogReplica
from semel.quorum.term import Term
from semel.quorum.voters import ReplicaKey
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
    QuorumListener,
    QuorumNode,
    QuorumReplica,
)


def handle(
    request: DescribeQuorumRequest,
    context: RequestContext,
    *,
    node: NodeInfo,
    replica: LogReplica,
    cluster: ClusterView,
    bound: Mapping[str, NodeListener],
    clock: Clock,
) -> DescribeQuorumResponse:
    try:
        context.authorise_cluster(Operation.DESCRIBE)
        if [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in request.topics] != [
            (TOPIC, [PARTITION])
        ]:
            raise Refused(ErrorCode.INVALID_REQUEST, f"partition 0 of {TOPIC} can be described, and nothing else")
    except Refused as refusal:
        return DescribeQuorumResponse(error_code=refusal.code, error_message=refusal.text)
    term = replica.term
    if term is None:
        return DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    now_ms = clock.wall_ms()
    known, ends = term.replicas(), term.ends_of_voters()

    def described(key: ReplicaKey, end_offset: int) -> QuorumReplica:
        if key.may_be(term.key):
            return QuorumReplica(
                replica_id=key.node_id,
                replica_directory_id=term.key.directory_id,
                log_end_offset=term.log_end,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        fetched = next((one for other, one in known.items() if other.may_be(key)), None)
        return QuorumReplica(
            replica_id=key.node_id,
            replica_directory_id=key.directory_id,
            log_end_offset=end_offset,
            last_fetch_timestamp=-1 if fetched is None else fetched.last_fetch_ms,
            last_caught_up_timestamp=-1 if fetched is None else fetched.last_caught_up_ms,
        )

    partition = DescribeQuorumResponsePartition(
        partition_index=PARTITION,
        leader_id=term.key.node_id,
        leader_epoch=term.epoch,
        high_watermark=term.high_watermark,
        current_voters=[described(key, end) for key, end in sorted(ends.items())],
        observers=[described(key, one.end_offset) for key, one in sorted(known.items()) if key not in term.voters],
    )
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponseTopic(topic_name=TOPIC, partitions=[partition])],
        nodes=_nodes(node, bound, cluster, term),
    )


def _nodes(node: NodeInfo, bound: Mapping[str, NodeListener], cluster: ClusterView, term: Term) -> list[QuorumNode]:
    """Where the voters are: this one by its listeners, the others as they have registered."""
    own = [
        QuorumListener(name=one.name, host=one.advertised_host or one.host, port=one.advertised_port)
        for one in bound.values()
        if ListenerKind.CONTROLLERS in one.kind
    ]
    nodes = []
    for voter_id in term.voters.ids:
        registered = cluster.image.controllers.get(voter_id)
        if voter_id == node.node_id:
            nodes.append(QuorumNode(node_id=voter_id, listeners=own))
        elif registered is not None:
            listeners = [QuorumListener(name=one.name, host=one.host, port=one.port) for one in registered.end_points]
            nodes.append(QuorumNode(node_id=voter_id, listeners=listeners))
    return nodes
