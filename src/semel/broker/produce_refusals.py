"""What a producer is told when its batch is refused, or is written and not known to be committed: with the leader, if
another node leads now (KIP-951)."""

from __future__ import annotations

from semel.broker.leader_hints import LeaderHints
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.produce import LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse


def leader_of(topic: str | bytes, index: int, code: ErrorCode, hints: LeaderHints) -> LeaderIdAndEpoch | None:
    leader = hints.leader(topic, index, code)
    return None if leader is None else LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)


def endpoints_of(hints: LeaderHints | None) -> list[NodeEndpoint]:
    """Where the leaders are that were named in refusals."""
    if hints is None:
        return []
    return [
        NodeEndpoint(node_id=found.node_id, host=found.host, port=found.port, rack=found.rack)
        for found in hints.endpoints()
    ]


def refused_after_append(
    result: PartitionProduceResponse, refusal: Refused, topic: str | bytes, hints: LeaderHints
) -> PartitionProduceResponse:
    """Makes a refusal of what was a success but for the commit. The topic is given by name or id."""
    result.error_code = refusal.code
    result.error_message = refusal.text
    result.base_offset = result.log_append_time_ms = -1
    result.current_leader = leader_of(topic, result.index, ErrorCode(refusal.code), hints)
    return result
