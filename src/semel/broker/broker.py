"""A node alone: a cluster of one. Wires the parts together, starts and stops them in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from semel.broker.authoriser import AllowAll, Authoriser
from semel.broker.fetch_sessions import FetchSessions
from semel.broker.identity import check_place, cluster_id_of
from semel.broker.internal_topics import ensure
from semel.broker.markers import LocalMarkers
from semel.broker.producer_ids import ProducerIds
from semel.broker.router import Router
from semel.broker.topics import Topics
from semel.config import BrokerConfig, topic_config
from semel.controller.controller import Controller
from semel.controller.image import BROKER_RESOURCE, MetadataImage
from semel.controller.metadata_log import TOPIC as METADATA_TOPIC
from semel.controller.metadata_log import MetadataLog
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.topic_names import OFFSETS_TOPIC
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.host.api import Host
from semel.host.complaints import Complaints
from semel.log.errors import BrokenLog, CorruptSegment
from semel.log.store import LogStore
from semel.records import warn_if_uncompiled
from semel.replication.term_kernel import Generation
from semel.rpc.server import Limits, Server
from semel.wire.primitives import coordinator_partition
from semel.wire.spec.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

logger = logging.getLogger("semel.broker")

# What the cluster agrees on. 7 is the level of Kafka 3.3: the versions in which the metadata records are written.
# Least and greatest level of each: the greatest is finalized. Kafka 4 begins metadata.version at 7, too.
SUPPORTED_FEATURES = {"metadata.version": (7, 7), "group.version": (0, 1), "transaction.version": (0, 2)}
# The metadata log is always durable before it counts, and is cut by snapshots, not by age.
_METADATA_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "flush.messages": "1",
    "min.insync.replicas": "1",
}


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
        self.config = config
        self.node_id = config.int("node.id")
        self.cluster_id = ""
        self.authoriser = authoriser or AllowAll()
        self.on_broken = on_broken
        # Raised when a leader, a setting or a permission changes: what was concluded from them is asked again.
        self.generation = Generation()
        self.store = LogStore(host, config.log_dir(), config, on_broken)
        self.fetch_sessions = FetchSessions(host.random, config.int("max.incremental.fetch.session.cache.slots"))
        self._router = Router(self, self.authoriser)
        self.server = Server(host, _limits(config), self._router.dispatch, self._request_failed)
        self._complaints = Complaints(logger)
        self._reported: set[tuple[str, int]] = set()
        self._is_stopping = False

    @property
    def image(self) -> MetadataImage:
        """Cluster metadata as committed."""
        return self.metadata.committed

    @property
    def features_epoch(self) -> int:
        return self.metadata.next_offset

    async def start(self) -> None:
        """Ready when it returns. Raises AlreadyLocked, WrongDirectory or OSError with nothing left behind."""
        warn_if_uncompiled()
        check_place(self.host.disk, self.store.root)
        self.store.open()
        self.cluster_id = cluster_id_of(self.host.disk, self.store.root, self.node_id, self.host.random)
        log = self.store.load(METADATA_TOPIC, 0, "AAAAAAAAAAAAAAAAAAAAAQ", topic_config(_METADATA_CONFIG, self.config))
        self.metadata = MetadataLog(self.host.disk, self.host.clock, log, self.on_broken, self._committed)
        self.controller = Controller(self.metadata, self.config, self.host.random)
        self.producer_ids = ProducerIds(self.controller)
        self.topics = Topics(
            lambda: self.metadata.committed,
            self.store,
            self.config,
            self.host.clock,
            self.on_broken,
            self.generation,
        )
        self._follow_config()
        self.groups = GroupCoordinator(
            self.topics.partition,
            self.partition_count,
            lambda: self.metadata.committed,
            lambda: self.config,
            self.host.clock,
            self.host.random,
        )
        self.markers = LocalMarkers(self)
        self.transactions = TransactionCoordinator(
            self.topics.partition,
            self.partition_count,
            self.markers,
            self.producer_ids.next,
            self.host.clock,
            lambda: self.config,
        )
        listener = self.config.listener()
        try:
            await self.server.listen(listener.host, listener.port)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {listener.host}:{listener.port}: {error.strerror}") from error
        self.listener = listener._replace(port=self.server.port)
        advertised = self.config.advertised_listener()
        self.advertised_host = advertised.host or listener.host or "127.0.0.1"
        self.advertised_port = advertised.port or self.server.port
        finalized = {name: most for name, (_, most) in SUPPORTED_FEATURES.items()}
        await self.controller.start_broker(self.advertised_host, self.advertised_port, finalized)
        if self.metadata.wants_snapshot:
            await self.metadata.snapshot()
        self.store.start_upkeep()
        self.groups.start()
        self.transactions.shards.load_all()
        self.transactions.start_upkeep()
        self._router.load_handlers()
        self.server.open_gate()

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; 0 when there is no such topic."""
        known = self.topics.by_name.get(topic)
        return 0 if known is None else len(known.partitions)

    async def offsets_partition(self, group_id: str) -> tuple[str, int]:
        """The partition that holds the offsets of a group."""
        await ensure(self, OFFSETS_TOPIC)
        return OFFSETS_TOPIC, coordinator_partition(group_id, self.partition_count(OFFSETS_TOPIC))

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
        image = self.metadata.committed
        config = self.config.with_overrides(
            cluster=image.config(BROKER_RESOURCE, ""), node=image.config(BROKER_RESOURCE, str(self.node_id))
        )
        self.config = self.controller.config = self.store.config = config
        self.topics.set_broker_config(config)
        self.server.limits = _limits(config)

    def _request_failed(self, error: BaseException) -> None:
        """A bug in a handler closes one connection and is logged with its trace; a broken log ends the node."""
        if isinstance(error, BrokenLog):
            self.on_broken(error)

    def report_damage(self, damage: CorruptSegment) -> None:
        """Once per place: a reader that comes again and again does not fill the log."""
        place = (damage.path, damage.position)
        if place not in self._reported:
            self._reported.add(place)
            logger.error("%s: not served", damage)

    def report_unreadable(self, error: OSError) -> None:
        """The disk refuses to be read, or this process may not open more files: the reader asks again."""
        self._complaints.say("unreadable", logging.ERROR, "a fetch was answered with an error: %s", error)

    async def stop(self) -> None:
        """A clean stop: the next start needs no recovery."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self.server.close()
        self.topics.close()
        await self.groups.close()
        await self.transactions.close()
        for partition in self.topics.online():
            await partition.close()
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
