"""What this node follows: terms for `Topics`, fetched by the listener for brokers of each leader."""

from __future__ import annotations

from collections.abc import Callable

from semel.broker.cluster_view import ClusterView
from semel.broker.node_info import NodeInfo
from semel.broker.peers import Peers
from semel.controller.image import PartitionState
from semel.host.api import Host
from semel.log.group_commit import GroupCommit
from semel.log.log import Log
from semel.replication.fetcher import ReplicaFetchers
from semel.replication.follower import Follower


class Following:
    """The Followers of a node. `listener` is the one for brokers."""

    def __init__(
        self,
        host: Host,
        node: NodeInfo,
        cluster: ClusterView,
        listener: str,
        on_broken: Callable[[BaseException], None],
        on_damage: Callable[[bytes, int], None] = lambda topic_id, index: None,
    ) -> None:
        """`on_damage` is told of a replica that the controller counts on, and that cannot be used."""
        self._on_damage = on_damage
        self._node = node
        self._cluster = cluster
        self._clock = host.clock
        self._on_broken = on_broken
        # A request that the leader holds holds up all that is behind it on its connection.
        self._peers = Peers(host, node, cluster, listener, "replica")
        self._peers_aside = Peers(host, node, cluster, listener, "replica-aside")
        self.fetchers = ReplicaFetchers(
            node.node_id,
            self._peers,
            self._peers_aside,
            lambda: node.broker_epoch,
            lambda: node.config,
            lambda: cluster.image.metadata_version,
            host.clock,
            host.random,
            on_broken,
        )

    def begin(
        self, topic: str, topic_id: bytes, index: int, log: Log, state: PartitionState, group_commit: GroupCommit
    ) -> Follower:
        follower = Follower(
            topic,
            topic_id,
            index,
            log,
            state.leader,
            state.leader_epoch,
            self._clock,
            self._on_broken,
            group_commit=group_commit,
            is_in_sync=lambda: self._is_in_sync(topic, topic_id, index),
            on_damage=lambda: self._on_damage(topic_id, index),
        )
        self.fetchers.follow(follower)
        return follower

    def _is_in_sync(self, topic: str, topic_id: bytes, index: int) -> bool:
        """Whether the controller counts on what is here, as far as the metadata log says. A topic that is gone, or is
        another one by now, is none to empty a log for."""
        found = self._cluster.image.topics.get(topic)
        if found is None or found.topic_id != topic_id or index not in found.partitions:
            return True
        state = found.partitions[index]
        return self._node.node_id in state.isr or self._node.node_id in state.elr

    def end(self, term: object) -> None:
        if isinstance(term, Follower):
            self.fetchers.unfollow(term)

    async def close(self) -> None:
        """Fetches no more. The terms end with their partitions."""
        await self.fetchers.close()
        await self._peers.close()
        await self._peers_aside.close()
