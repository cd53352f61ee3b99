"""The coordinators of a node and what they need of each other and of other nodes, wired together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from semel.broker.cluster_view import ClusterView
from semel.broker.markers import MARKERS_PURPOSE, LocalMarkers
from semel.broker.node_info import NodeInfo
from semel.broker.remote_joins import RemoteJoins
from semel.broker.remote_markers import ClusterMarkers
from semel.broker.topics import Topics
from semel.broker.transaction_membership import TransactionMembership
from semel.broker.transactional_produce import TransactionVerifier
from semel.broker.verification_guards import VerificationGuards
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.group.state import GroupState
from semel.coordinator.shards import Shards
from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.transactions import Transactions
from semel.coordinator.work import WorkQueue
from semel.host.api import Host
from semel.log.types import ProducerId
from semel.peer.caller import PeerCaller
from semel.replication.partition import Partition
from semel.rpc.budget import MemoryBudget
from semel.wire.spec.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


class Coordinators:
    def __init__(
        self,
        node: NodeInfo,
        cluster: ClusterView,
        topics: Topics,
        host: Host,
        budget: MemoryBudget,
        next_producer_id: Callable[[], Awaitable[ProducerId]],
        newest_connection: Callable[[], int],
        peers: Callable[[str], PeerCaller] | None = None,
    ) -> None:
        """`peers` makes connections of their own for a purpose; without it the node is alone. `newest_connection` is
        the number of the last connection that this node has accepted."""
        clock, random = host.clock, host.random
        work = WorkQueue(clock, host.keep_memory)
        self._guards = guards = VerificationGuards()
        self.groups = GroupCoordinator(
            topics.partition,
            cluster.partition_count,
            lambda: cluster.image,
            lambda: node.config,
            clock,
            random,
            budget,
            work=work,
            newest_connection=newest_connection,
        )
        self.markers = LocalMarkers(cluster, topics, self.groups, guards)
        # A connection answers in order, and the answer to markers waits for their commit.
        self._remote_markers = (
            None if peers is None else ClusterMarkers(self.markers, cluster, node, peers(MARKERS_PURPOSE))
        )
        self._joins = None if peers is None else RemoteJoins(peers("joins"))
        self.transactions = TransactionCoordinator(
            topics.partition,
            cluster.partition_count,
            self._remote_markers or self.markers,
            next_producer_id,
            clock,
            lambda: node.config,
            work=work,
            newest_connection=newest_connection,
        )
        membership = TransactionMembership(self.transactions, node, cluster, guards, self._joins)
        self.verifier = TransactionVerifier(self.transactions, membership)

        self._node = node
        self._cluster = cluster
        self._shards: dict[str, Shards[GroupState] | Shards[Transactions]] = {
            OFFSETS_TOPIC: self.groups.shards,
            TRANSACTIONS_TOPIC: self.transactions.shards,
        }
        for shards in self._shards.values():
            shards.on_damage = topics.found_damage

    def start(self) -> None:
        """Before anybody can ask: what was left unfinished goes on."""
        self.groups.start()
        self.transactions.shards.load_all()
        self.transactions.start_upkeep()

    def began(self, partition: Partition) -> None:
        """This node leads a partition, from now on."""
        if partition.topic in self._shards:
            self._shards[partition.topic].began(partition)

    def follow(self, records: Sequence[MetadataRecord], deleted_topics: Sequence[str]) -> None:
        """These records are committed, and `Topics` has followed them."""
        if not any(
            isinstance(record, TopicRecord | PartitionRecord | PartitionChangeRecord | RemoveTopicRecord)
            for record in records
        ):
            return
        self._follow_leadership()
        if any(isinstance(record, TopicRecord | PartitionRecord | RemoveTopicRecord) for record in records):
            self.groups.topics_changed(deleted_topics)

    def follow_image(self, deleted_topics: Sequence[str]) -> None:
        """The committed image is another as a whole, and `Topics` has followed it."""
        self._follow_leadership()
        self.groups.topics_changed(deleted_topics)

    def _follow_leadership(self) -> None:
        for shards in self._shards.values():
            shards.follow(partial(self._is_led_here, shards.topic))
        if self._remote_markers is not None:
            self._remote_markers.follow()

    def _is_led_here(self, topic: str, index: int) -> bool:
        leader = self._cluster.leader(topic, index)
        return leader is not None and leader.node_id == self._node.node_id

    async def close(self) -> None:
        await self.groups.close()
        await self.transactions.close()
        for remote in (self._remote_markers, self._joins):
            if remote is not None:
                await remote.close()
