"""DescribeQuorum (55), versions 0-2: who leads the metadata log, who votes, who follows, and how far each has come."""

from __future__ import annotations

from collections.abc import Mapping

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.node_info import NodeInfo
from semel.config import ListenerKind, NodeListener
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.quorum.metadata_topic import PARTITION, TOPIC
from semel.quorum.owner import LogReplica
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
    leader = QuorumReplica(
        replica_id=node.node_id,
        replica_directory_id=term.key.directory_id,
        log_end_offset=term.log_end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    observers = [
        QuorumReplica(
            replica_id=key.node_id,
            replica_directory_id=key.directory_id,
            log_end_offset=one.end_offset,
            last_fetch_timestamp=one.last_fetch_ms,
            last_caught_up_timestamp=one.last_caught_up_ms,
        )
        for key, one in sorted(term.replicas().items())
        if key.node_id != node.node_id
    ]
    partition = DescribeQuorumResponsePartition(
        partition_index=PARTITION,
        leader_id=term.key.node_id,
        leader_epoch=term.epoch,
        high_watermark=term.high_watermark,
        current_voters=[leader],
        observers=observers,
    )
    listeners = [
        QuorumListener(name=one.name, host=one.advertised_host or one.host, port=one.advertised_port)
        for one in bound.values()
        if ListenerKind.CONTROLLERS in one.kind
    ]
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponseTopic(topic_name=TOPIC, partitions=[partition])],
        nodes=[QuorumNode(node_id=node.node_id, listeners=listeners)],
    )
