"""A node alone: a cluster of one. Wires the parts together, starts and stops them in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from semel.broker.authoriser import AllowAll, Authoriser
from semel.broker.cluster_view import ClusterView
from semel.broker.controller_channel import LocalController
from semel.broker.fetch_sessions import FetchSessions
from semel.broker.identity import check_place, identity_of
from semel.broker.internal_topics import InternalTopics
from semel.broker.leading import Leading
from semel.broker.markers import LocalMarkers
from semel.broker.node_info import NodeInfo
from semel.broker.producer_ids import ProducerIds
from semel.broker.read_failures import ReadFailures
from semel.broker.replica_sessions import ReplicaSession
from semel.broker.roles import Roles
from semel.broker.router import Router
from semel.broker.topics import Topics
from semel.broker.transactional_produce import TransactionVerifier
from semel.config import BrokerConfig, ListenerKind, NodeListener, topic_config
from semel.config.listeners import PROTOCOLS
from semel.controller.controller import Controller
from semel.controller.image import BROKER_RESOURCE, MetadataImage
from semel.controller.levels import LEVEL_OF_A_NODE_ALONE, features_at
from semel.controller.metadata_log import TOPIC as METADATA_TOPIC
from semel.controller.metadata_log import MetadataLog
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.host.api import Host
from semel.log.errors import BrokenLog
from semel.log.store import LogStore
from semel.records import warn_if_uncompiled
from semel.replication.term_kernel import Generation
from semel.rpc.server import Limits, Server
from semel.wire.spec.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

# The metadata log is always durable before it counts, and is cut by snapshots, not by age.
_METADATA_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "flush.messages": "1",
    "min.insync.replicas": "1",
}
# More than any cluster has followers: one session for each of their fetchers.
_REPLICA_SESSIONS = 1000


class Broker:
    """Everything that one node holds. `on_broken` is called when nothing can be promised any more: it ends the node."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        on_broken: Callable[[BaseException], None],
        authoriser: Authoriser | None = None,
    ) -> None:
        self.host = host
        self.node = NodeInfo(config.int("node.id"), config)
        self.authoriser = authoriser or AllowAll()
        self.on_broken = on_broken
        # Raised when a leader, a setting or a permission changes: what was concluded from them is asked again.
        self.generation = Generation()
        self.store = LogStore(host, config.log_dir(), config, on_broken)
        self.fetch_sessions = FetchSessions(host.random, config.int("max.incremental.fetch.session.cache.slots"))
        self.replica_sessions = FetchSessions(host.random, _REPLICA_SESSIONS, ReplicaSession)
        self.listeners: list[NodeListener] = []  # with the ports that they have got
        self._is_stopping = False

    @property
    def config(self) -> BrokerConfig:
        return self.node.config

    @property
    def cluster_id(self) -> str:
        return self.node.cluster_id

    @property
    def image(self) -> MetadataImage:
        """Cluster metadata as committed."""
        return self.metadata.committed

    async def start(self) -> None:
        """Ready when it returns. Raises AlreadyLocked, WrongDirectory or OSError with nothing left behind."""
        warn_if_uncompiled()
        host, node = self.host, self.node
        check_place(host.disk, self.store.root)
        self.store.open()
        is_alone = self.config.layout.is_alone
        identity = identity_of(host.disk, self.store.root, node.node_id, host.random, may_format=is_alone)
        node.cluster_id = identity.cluster_id
        self._directories = identity.directories
        log = self.store.load(METADATA_TOPIC, 0, "AAAAAAAAAAAAAAAAAAAAAQ", topic_config(_METADATA_CONFIG, self.config))
        self.metadata = MetadataLog(host.disk, host.clock, log, self.on_broken, self._committed)
        self.controller = Controller(self.metadata, self.config, host.random, host.clock, lambda: self.node.cluster_id)
        self.cluster = ClusterView(lambda: self.metadata.committed, lambda: self.metadata.next_offset)
        channel = LocalController(self.controller)
        # What a leader with followers needs; a node alone has none.
        self.leading: Leading | None = None
        if not is_alone:
            self.leading = Leading(node, self.cluster, host.clock, channel.alter_partition, self.on_broken)
        self.topics = Topics(
            node, self.cluster, self.store, host.clock, self.on_broken, self.generation, leading=self.leading
        )
        self._build_roles(channel)
        self.server = Server(host, _limits(self.config), self._router.dispatch, self._request_failed)
        self._follow_config()
        await self._listen()
        await self._register()
        await self.topics.when_open()
        if self.leading is not None:
            self.leading.start(self.topics.online)
        if self.metadata.wants_snapshot:
            await self.metadata.snapshot()
        self.store.start_upkeep()
        self.groups.start()
        self.transactions.shards.load_all()
        self.transactions.start_upkeep()
        self.server.open_gate()

    def _build_roles(self, channel: LocalController) -> None:
        host, cluster, topics = self.host, self.cluster, self.topics
        self.producer_ids = ProducerIds(channel.allocate_producer_ids)
        self.groups = GroupCoordinator(
            topics.partition,
            cluster.partition_count,
            lambda: cluster.image,
            lambda: self.node.config,
            host.clock,
            host.random,
        )
        self.markers = LocalMarkers(cluster, topics, self.groups)
        self.transactions = TransactionCoordinator(
            topics.partition,
            cluster.partition_count,
            self.markers,
            self.producer_ids.next,
            host.clock,
            lambda: self.node.config,
        )
        self.roles = Roles(
            node=self.node,
            listeners={listener.name: listener.kind for listener in self.config.layout.listeners},
            cluster=cluster,
            topics=topics,
            controller=channel,
            active_controller=channel.active,
            internal_topics=InternalTopics(cluster, channel),
            groups=self.groups,
            transactions=self.transactions,
            verifier=TransactionVerifier(self.transactions, self.node),
            markers=self.markers,
            producer_ids=self.producer_ids,
            fetch_sessions=self.fetch_sessions,
            replica_sessions=self.replica_sessions,
            store=self.store,
            read_failures=ReadFailures(),
            clock=host.clock,
            disk=host.disk,
            jobs=host.jobs,
            on_broken=self.on_broken,
        )
        self._router = Router(self.authoriser, self.roles, self.generation)

    async def _listen(self) -> None:
        for listener in self.config.layout.listeners:
            try:
                await self.server.listen(listener)
            except OSError as error:
                self.server.close()
                where = f"{listener.host}:{listener.port}"
                raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from error
        self.listeners = list(self.server.listeners.values())

    async def _register(self) -> None:
        """A start of this node, as the cluster is told of it."""
        end_points = [
            BrokerEndpoint(
                name=one.name,
                host=one.advertised_host,
                port=one.advertised_port,
                security_protocol=PROTOCOLS[one.protocol],
            )
            for one in self.listeners
            if one.advertised_host is not None and ListenerKind.CLIENTS in one.kind
        ]
        features = features_at(LEVEL_OF_A_NODE_ALONE)
        await self.controller.start_broker(end_points, self.config.text("broker.rack"), features, self._directories)

    def _committed(self, records: Sequence[MetadataRecord]) -> None:
        """Records of the metadata log count from now on."""
        if any(isinstance(record, ConfigRecord) and record.resource_type == BROKER_RESOURCE for record in records):
            self._follow_config()
        removed = [record.topic_id for record in records if isinstance(record, RemoveTopicRecord)]
        deleted = [self.topics.by_id[topic_id].name for topic_id in removed if topic_id in self.topics.by_id]
        self.topics.apply(records)
        if any(isinstance(record, TopicRecord | PartitionRecord | RemoveTopicRecord) for record in records):
            self.groups.topics_changed(deleted)

    def _follow_config(self) -> None:
        image = self.cluster.image
        self.node.config = self.controller.config = self.store.config = self.config.with_overrides(
            cluster=image.config(BROKER_RESOURCE, ""), node=image.config(BROKER_RESOURCE, str(self.node.node_id))
        )
        self.topics.follow_config()
        self.server.limits = _limits(self.config)

    def _request_failed(self, error: BaseException) -> None:
        """A bug in a handler closes one connection and is logged with its trace; a broken log ends the node."""
        if isinstance(error, BrokenLog):
            self.on_broken(error)

    async def stop(self) -> None:
        """A clean stop: the next start needs no recovery."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self.server.close()
        self.topics.stop_opening()
        self.producer_ids.close()
        await self.groups.close()
        await self.transactions.close()
        if self.leading is not None:
            await self.leading.close()
        await self.topics.close()
        await self.metadata.close()
        await self.store.close()
        self.host.close()


def _limits(config: BrokerConfig) -> Limits:
    return Limits(
        connections=config.int("max.connections"),
        connections_per_host=config.int("max.connections.per.ip"),
        idle_ms=config.int("connections.max.idle.ms"),
        frame_bytes=config.int("socket.request.max.bytes"),
        frame_bytes_before_authentication=config.int("sasl.server.max.receive.size"),
        requests_in_memory_bytes=config.int("queued.max.request.bytes"),
    )
