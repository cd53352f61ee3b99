"""Who leads a partition instead, told with the refusal (KIP-951): so a client need not ask for metadata first."""

from __future__ import annotations

from semel.broker.cluster_view import ClusterView, Endpoint, Leader
from semel.wire.errors import ErrorCode

_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints:
    """Of one answer: collects whose addresses go with it. Used only once something is refused."""

    def __init__(self, cluster: ClusterView, listener: str) -> None:
        self._cluster = cluster
        self._endpoints = cluster.endpoints(listener)
        self._leaders: dict[int, None] = {}

    def leader(self, topic: str | bytes, index: int, code: ErrorCode) -> Leader | None:
        """The leader that goes with a refusal of a partition, whose topic is given by name or id."""
        leader = self._cluster.leader(topic, index) if code in _HINTED else None
        if leader is not None:
            self._leaders[leader.node_id] = None
        return leader

    def endpoints(self) -> list[Endpoint]:
        return [self._endpoints[node_id] for node_id in self._leaders if node_id in self._endpoints]
