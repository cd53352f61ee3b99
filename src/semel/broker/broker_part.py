"""What a node with the role of a broker has: topics, coordinators, and the view of the cluster that they go by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from semel.broker.cluster_view import ClusterView
from semel.broker.controller_channel import ControllerChannel
from semel.broker.coordinators import Coordinators
from semel.broker.fetch_sessions import FetchSessions
from semel.broker.internal_topics import InternalTopics
from semel.broker.leading import Leading
from semel.broker.metadata_source import MetadataSource
from semel.broker.node_info import NodeInfo
from semel.broker.producer_ids import ProducerIds
from semel.broker.read_failures import ReadFailures
from semel.broker.replica_sessions import ReplicaSession
from semel.broker.roles import Roles
from semel.broker.topics import Topics
from semel.config import ListenerKind
from semel.host.api import Host
from semel.log.store import LogStore
from semel.metrics.node_counts import NodeCounts
from semel.replication.term_kernel import Generation
from semel.rpc.long_requests import LongRequests
from semel.wire.spec.metadata_records import MetadataRecord, RemoveTopicRecord

if TYPE_CHECKING:  # what only a node among others needs is loaded by it
    from semel.broker.damaged_replicas import DamagedReplicas
    from semel.broker.following import Following
    from semel.broker.peers import Peers

# More than any cluster has followers: one session for each of their fetchers.
_REPLICA_SESSIONS = 1000


class BrokerPart:
    """`apply_image` comes first, then whatever records were committed since."""

    def __init__(
        self,
        host: Host,
        node: NodeInfo,
        store: LogStore,
        source: MetadataSource,
        channel: ControllerChannel,
        on_broken: Callable[[BaseException], None],
        generation: Generation,
        fetch_sessions: FetchSessions,
        newest_connection: Callable[[], int],
        long_requests: LongRequests,
        on_flushed_later: Callable[[], None],
        counts: NodeCounts,
    ) -> None:
        self._node = node
        self._has_image = False
        self.cluster = cluster = ClusterView(lambda: source.committed, lambda: source.next_offset)
        # For partitions that have replicas on other nodes, too.
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.damaged: DamagedReplicas | None = None
        layout = node.config.layout
        if not layout.is_alone:
            self.leading = Leading(node, cluster, host.clock, channel.alter_partition, on_broken, counts.isr)
            from semel.broker.damaged_replicas import DamagedReplicas
            from semel.broker.following import Following

            self.damaged = DamagedReplicas(
                node,
                cluster,
                channel.assign_replicas_to_dirs,
                lambda topic_id, index: self.topics.begin_anew(topic_id, index),
                on_broken,
            )
            self.following = Following(host, node, cluster, layout.inter_broker, on_broken, self.damaged.found)
        self.topics = topics = Topics(
            node,
            cluster,
            store,
            host.clock,
            on_broken,
            generation,
            leading=self.leading,
            followers=self.following,
            damaged=self.damaged,
            on_flushed_later=on_flushed_later,
            on_led=lambda partition: self.coordinators.began(partition),
        )
        self.producer_ids = ProducerIds(channel.allocate_producer_ids)
        self._peers: list[Peers] = []
        is_alone = node.config.layout.is_alone
        self.coordinators = Coordinators(
            node,
            cluster,
            topics,
            host,
            long_requests.budget,
            self.producer_ids.next,
            newest_connection,
            None if is_alone else partial(self._new_peers, host),
        )
        self.groups, self.transactions = self.coordinators.groups, self.coordinators.transactions
        self.markers = self.coordinators.markers
        self.roles = Roles(
            node=node,
            listeners={
                listener.name: listener.kind
                for listener in node.config.layout.listeners
                if ListenerKind.CONTROLLERS not in listener.kind
            },
            cluster=cluster,
            topics=topics,
            controller=channel,
            internal_topics=InternalTopics(cluster, channel),
            groups=self.groups,
            transactions=self.transactions,
            verifier=self.coordinators.verifier,
            markers=self.markers,
            producer_ids=self.producer_ids,
            fetch_sessions=fetch_sessions,
            replica_sessions=FetchSessions(host.random, _REPLICA_SESSIONS, ReplicaSession),
            store=store,
            read_failures=ReadFailures(topics.found_damage),
            slices=long_requests.slices,
            clock=host.clock,
            disk=host.disk,
            jobs=host.jobs,
            on_broken=on_broken,
        )

    def _new_peers(self, host: Host, purpose: str) -> Peers:
        from semel.broker.peers import Peers

        self._peers.append(Peers(host, self._node, self.cluster, self._node.config.layout.inter_broker, purpose))
        return self._peers[-1]

    async def apply_image(self) -> None:
        """Follows the whole image for the first time. Returns when all that is served here is open."""
        self._has_image = True
        self.topics.follow_image()
        await self.topics.when_open()

    def reloaded(self) -> None:
        """Another image took the place of the one before."""
        if self._has_image:
            image = self.cluster.image
            gone = [name for name, topic in self.topics.by_name.items() if image.topic_by_id(topic.topic_id) is None]
            self.topics.follow_image()
            self.coordinators.follow_image(gone)

    def committed(self, records: Sequence[MetadataRecord]) -> None:
        """Records of the metadata log count from now on: the image has them."""
        if not self._has_image:
            return
        removed = [record.topic_id for record in records if isinstance(record, RemoveTopicRecord)]
        deleted = [self.topics.by_id[topic_id].name for topic_id in removed if topic_id in self.topics.by_id]
        self.topics.apply(records)
        self.coordinators.follow(records, deleted)

    def start(self) -> None:
        """Coordinators begin their work."""
        if self.leading is not None:
            self.leading.start(self.topics.online)
        self.coordinators.start()

    async def close(self) -> None:
        if self.leading is not None:
            await self.leading.close()
        if self.damaged is not None:
            await self.damaged.close()
        self.topics.stop_opening()
        if self.following is not None:
            await self.following.close()
        self.producer_ids.close()
        await self.coordinators.close()
        for peers in self._peers:
            await peers.close()
        await self.topics.close()
