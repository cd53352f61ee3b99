"""One node: wires its parts together, starts and stops them in order.

There are four shapes. Alone: a controller and a broker that are a cluster of their own, and no listener for others.
Combined: the same two, among other nodes. Controller only. Broker only: it follows the metadata log of the controllers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from semel.broker.authoriser import AllowAll, Authoriser, RulesAuthoriser
from semel.broker.broker_part import BrokerPart
from semel.broker.cluster_view import ClusterView
from semel.broker.controller_channel import ControllerChannel
from semel.broker.controller_part import ControllerPart
from semel.broker.fetch_sessions import FetchSessions
from semel.broker.flushed_epoch import FlushedEpoch
from semel.broker.identity import check_place, identity_of
from semel.broker.node_info import NodeInfo
from semel.broker.router import Router
from semel.broker.topics import Topics
from semel.config import BrokerConfig, ListenerKind, NodeListener, Role, topic_config
from semel.config.listeners import PLAINTEXT
from semel.config.security_settings import parse_principals
from semel.controller.controller import Controller
from semel.controller.credentials import SCRAM_CODES
from semel.controller.image import BROKER_RESOURCE, MetadataImage
from semel.controller.metadata import Metadata
from semel.controller.metadata_term import MetadataTerm
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.host.api import Host
from semel.log.errors import BrokenLog, CorruptSegment, DataMissing
from semel.log.group_commit import GroupCommit
from semel.log.log import Log
from semel.log.store import LogStore
from semel.metrics.node_counts import NodeCounts
from semel.quorum.metadata_topic import PARTITION, TOPIC_ID_TEXT
from semel.quorum.metadata_topic import TOPIC as METADATA_TOPIC
from semel.quorum.owner import LogReplica
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.sole_voter import SoleVoter
from semel.quorum.voters import ReplicaKey
from semel.records import warn_if_uncompiled
from semel.records.errors import RecordError
from semel.replication.term_kernel import Generation
from semel.rpc.budget import MemoryBudget
from semel.rpc.long_requests import LongRequests
from semel.rpc.server import Guard, Limits, Server
from semel.rpc.slices import Slices
from semel.wire.errors import WireError
from semel.wire.spec.metadata_records import ConfigRecord, MetadataRecord

# What only nodes among others need is loaded by them: a node alone is to be small, and to start quickly.
if TYPE_CHECKING:
    from semel.broker.controller_registration import ControllerRegistration
    from semel.broker.joining import Joining
    from semel.broker.quorum_part import QuorumPart
    from semel.security.scram_server import Credential

logger = logging.getLogger("semel.broker")

# The metadata log is always durable before it counts, and is cut by snapshots, not by age.
_METADATA_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "flush.messages": "1",
    "min.insync.replicas": "1",
}


class Broker:
    """Everything that one node holds. `on_broken` is called when nothing can be promised any more: it ends the node.

    Parts that this node does not have are None, or raise AttributeError: see the shapes above.
    """

    metadata: Metadata
    topics: Topics
    groups: GroupCoordinator
    transactions: TransactionCoordinator

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        on_broken: Callable[[BaseException], None],
        authoriser: Authoriser | None = None,
    ) -> None:
        self.host = host
        self.node = NodeInfo(config.int("node.id"), config)
        self.authoriser = authoriser or _authoriser(config)
        self.on_broken = on_broken
        # Raised when a leader, a setting or a permission changes: what was concluded from them is asked again.
        self.generation = Generation()
        self.counts = NodeCounts(host.clock.monotonic_ns)
        self.store = LogStore(host, config.log_dir(), config, on_broken, self.counts.flushes)
        self.long_requests = LongRequests(
            Slices(host.clock),
            MemoryBudget(config.int("queued.max.request.bytes")),
            lambda: self.node.config.int("max.request.entries"),
        )
        self.fetch_sessions = FetchSessions(
            host.random,
            config.int("max.incremental.fetch.session.cache.slots"),
            most_partitions=config.int("max.incremental.fetch.session.partitions"),
            budget=self.long_requests.budget,
        )
        # Made at once: what is wrong with certificates and logins is told before anything is opened.
        self._guards = self._made_guards()
        self.bound: dict[str, NodeListener] = {}  # listeners by name, with the ports that they have got
        self.controller_part: ControllerPart | None = None
        self.quorum_part: QuorumPart | None = None
        self.broker_part: BrokerPart | None = None
        self.joining: Joining | None = None
        self.sole_voter: SoleVoter | None = None
        self.registration: ControllerRegistration | None = None
        self._has_parts = False
        self._is_leaving = False
        self._is_stopping = False
        self.is_started = False

    @property
    def why_not_ready(self) -> str | None:
        """None: it serves."""
        if self._is_leaving:
            return "the node is stopping"
        return None if self.is_started else "the node is starting"

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

    @property
    def controller(self) -> Controller:
        """The active controller; raises Refused when that is elsewhere."""
        assert self.controller_part is not None
        return self.controller_part.current()

    def _made_guards(self) -> dict[str, Guard]:
        secured = [one for one in self.config.layout.listeners if one.protocol != PLAINTEXT]
        if not secured:
            return {}
        from semel.security.listeners import ListenerSecurity

        return {
            one.name: ListenerSecurity(self.config, one.name, one.protocol, self._credential, self.host.clock)
            for one in secured
        }

    def _credential(self, name: str, mechanism: str) -> Credential | None:
        found = self.image.credentials.get((name, SCRAM_CODES[mechanism]))
        if found is None:
            return None
        from semel.security.scram_server import Credential

        return Credential(found.salt, found.stored_key, found.server_key, found.iterations)

    @property
    def budget(self) -> MemoryBudget:
        """What clients may take of its memory."""
        return self.long_requests.budget

    @property
    def listeners(self) -> list[NodeListener]:
        return list(self.bound.values())

    async def start(self) -> None:
        """Ready when it returns. Raises AlreadyLocked, WrongDirectory, OSError, or CannotJoin and WrongCluster when the
        other nodes do not take this one, with nothing left behind."""
        warn_if_uncompiled()
        layout = self.config.layout
        log = self._open()
        if layout.is_alone:
            await self._make_alone(log)
        else:
            await self._make_quorum(log)
        if Role.BROKER in layout.roles:
            self._make_broker()
        self._make_server()
        self._has_parts = True
        self._reload_rules()
        self._follow_config()
        await self._listen()
        if layout.is_alone:
            await self._begin_alone()
        else:
            try:
                await self._begin_among_others()
            except BaseException:
                await self._abandon()
                raise
        self.store.start_upkeep()
        self.is_started = True

    # -- the parts

    def _open(self) -> Log:
        """The directory, and the metadata log in it."""
        host, node, store = self.host, self.node, self.store
        check_place(host.disk, store.root)
        store.open()
        is_alone = self.config.layout.is_alone
        identity = identity_of(host.disk, store.root, node.node_id, host.random, may_format=is_alone)
        node.cluster_id, node.directories = identity.cluster_id, identity.directories
        self.flushed_epoch = FlushedEpoch(host.disk, store.root)
        config = topic_config(_METADATA_CONFIG, self.config)
        try:
            return store.load(METADATA_TOPIC, PARTITION, TOPIC_ID_TEXT, config)
        except DataMissing as missing:
            if Role.CONTROLLER in self.config.layout.roles:
                raise
            logger.error("%s: this node asks the controllers for its metadata again", missing.what)
            store.set_aside(METADATA_TOPIC, PARTITION)
            return store.load(METADATA_TOPIC, PARTITION, TOPIC_ID_TEXT, config)

    async def _make_alone(self, log: Log) -> None:
        """This node is the active controller when it returns: it asks nobody."""
        replicated = ReplicatedLog(self.host.disk, log, self.host.clock)
        self.metadata = metadata = Metadata(
            self.host.disk,
            self.host.clock,
            replicated,
            self._committed,
            self._reloaded,
            self.on_broken,
            self.long_requests.slices,
            on_term=self._follow_term,
        )
        self.sole_voter = SoleVoter(
            ReplicaKey(self.node.node_id, self.node.directory_id),
            replicated,
            GroupCommit(log, self.on_broken),
            metadata,
            self.host.disk,
            self.host.clock,
            self.on_broken,
        )
        self._make_controller(self.sole_voter)
        with self._damage_is_told(log):
            await metadata.open(may_drop=False)
            await self.sole_voter.start()

    async def _make_quorum(self, log: Log) -> None:
        from semel.broker.quorum_part import QuorumPart

        self.quorum_part = part = QuorumPart(
            self.host,
            self.node,
            log,
            self.on_broken,
            self._committed,
            self._reloaded,
            self._follow_term,
            self.bound,
            self.long_requests.slices,
        )
        self.metadata = part.metadata
        self.cluster = ClusterView(lambda: part.metadata.committed, lambda: part.metadata.next_offset)
        if Role.CONTROLLER in self.config.layout.roles:
            self._make_controller(part.replica)
        with self._damage_is_told(log):
            await part.open()

    def _make_controller(self, replica: LogReplica) -> None:
        self.controller_part = part = ControllerPart(
            self.host, self.node, self.metadata, replica, self.on_broken, self.bound, self.long_requests.slices
        )
        self.cluster = part.roles.cluster

    @contextmanager
    def _damage_is_told(self, log: Log) -> Iterator[None]:
        try:
            yield
        except (CorruptSegment, RecordError, WireError, LookupError) as damage:
            what = damage if isinstance(damage, CorruptSegment) else f"{log.directory}: {damage!r}"
            raise DataMissing(
                f"the metadata log cannot be read: {what}", advice=self.store.advice(METADATA_TOPIC, PARTITION)
            ) from damage

    def _follow_term(self, term: MetadataTerm | None) -> None:
        if self.controller_part is not None:
            self.controller_part.follow_term(term)

    def _make_broker(self) -> None:
        channel: ControllerChannel
        if self.quorum_part is not None:  # also where the active controller is in this process: it may change
            channel = self.quorum_part.channel
        else:
            assert self.controller_part is not None
            channel = self.controller_part.channel
        part = BrokerPart(
            self.host,
            self.node,
            self.store,
            self.metadata,
            channel,
            self.on_broken,
            self.generation,
            self.fetch_sessions,
            lambda: self.server.newest_connection,
            self.long_requests,
            self.flushed_epoch.void,
            self.counts,
        )
        self.broker_part, self.roles, self.cluster, self.topics = part, part.roles, part.cluster, part.topics
        self.groups, self.transactions, self.markers = part.groups, part.transactions, part.markers
        self.producer_ids = part.producer_ids

    def _make_server(self) -> None:
        self._router = Router(
            self.authoriser,
            None if self.broker_part is None else self.broker_part.roles,
            self.generation,
            self.long_requests,
            self.counts.requests,
            controller=None if self.controller_part is None else self.controller_part.roles,
            forwarder=None if self.quorum_part is None else self.quorum_part.forwarder,
            decides=lambda: self.controller_part is not None and self.controller_part.is_active,
        )
        self.server = Server(
            self.host,
            _limits(self.config),
            self._router.dispatch,
            self._request_failed,
            self.budget,
            self.counts.requests,
        )

    async def _listen(self) -> None:
        for listener in self.config.layout.listeners:
            try:
                await self.server.listen(listener, self._guards.get(listener.name))
            except OSError as error:
                self.server.close()
                where = f"{listener.host}:{listener.port}"
                raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from error
        self.bound.update(self.server.listeners)

    # -- starting

    async def _begin_alone(self) -> None:
        controller, broker = self.controller_part, self.broker_part
        assert controller is not None
        assert broker is not None
        await controller.begin_alone(self.listeners)
        await broker.apply_image()
        broker.start()
        self.server.open_gate()

    async def _begin_among_others(self) -> None:
        """Controllers serve at once: the others need them. Brokers serve when the active controller has let them."""
        quorum = self.quorum_part
        assert quorum is not None
        quorum.start()
        if self.controller_part is not None:
            from semel.broker.controller_registration import ControllerRegistration

            self.server.open_gate(ListenerKind.CONTROLLERS)
            self.registration = ControllerRegistration(
                self.node, quorum.metadata, quorum.channel, self.bound, self.host.random.randbytes(16), self.on_broken
            )
            self.registration.start()
        if self.broker_part is not None:
            await quorum.unless_impossible(self._join(quorum, self.broker_part))

    async def _join(self, quorum: QuorumPart, broker: BrokerPart) -> None:
        from semel.broker.joining import Joining

        self.joining = Joining(
            self.host,
            self.node,
            self.store,
            self.flushed_epoch,
            self.bound,
            quorum.channel,
            quorum.current_offset,
            quorum.metadata.until,
            self.on_broken,
        )
        await self.joining.join(broker)
        self.server.open_gate()

    # -- following the metadata

    def _committed(self, records: Sequence[MetadataRecord]) -> None:
        """Records of the metadata log count from now on. What was there when this node started is in the image."""
        if not self._has_parts:
            return
        if isinstance(self.authoriser, RulesAuthoriser) and self.authoriser.apply(records):
            self.generation.raise_it()
        if any(isinstance(record, ConfigRecord) and record.resource_type == BROKER_RESOURCE for record in records):
            self._follow_config()
        if self.broker_part is not None:
            self.broker_part.committed(records)

    def _reloaded(self) -> None:
        """Another image has taken the place of the one before."""
        if not self._has_parts:
            return
        self._reload_rules()
        self._follow_config()
        if self.broker_part is not None:
            self.broker_part.reloaded()

    def _reload_rules(self) -> None:
        if isinstance(self.authoriser, RulesAuthoriser):
            self.authoriser.reload(self.image)
            self.generation.raise_it()

    def _follow_config(self) -> None:
        image = self.image
        config = self.config.with_overrides(
            cluster=image.config(BROKER_RESOURCE, ""), node=image.config(BROKER_RESOURCE, str(self.node.node_id))
        )
        self.node.config = self.store.config = config
        if self.controller_part is not None:
            self.controller_part.follow_config()
        if self.broker_part is not None:
            self.topics.follow_config()
        self.server.limits = _limits(config)

    def _request_failed(self, error: BaseException) -> None:
        """A bug in a handler closes one connection and is logged with its trace; a broken log ends the node."""
        if isinstance(error, BrokenLog):
            self.on_broken(error)

    # -- stopping

    def hurry(self) -> None:
        """A stop, under way or to come, is clean, but hands nothing over to other nodes."""
        if self.joining is not None:
            self.joining.lifecycle.hurry()

    async def leave(self) -> None:
        """The first part of a clean stop: others lead what this node has led. It serves until then."""
        if self._is_leaving:
            return
        self._is_leaving = True
        if self.joining is not None:
            await self.joining.leave()

    async def stop(self) -> None:
        """A clean stop: the next start needs no recovery."""
        if self._is_stopping:
            return
        self._is_stopping = True
        await self.leave()
        if self.quorum_part is not None:
            await self.quorum_part.replica.resign()  # others can be elected while this node closes its logs
        self.server.close()
        await self._close_parts()
        await self.store.close()
        self.host.close()

    async def _abandon(self) -> None:
        """A start that came to nothing."""
        self._is_stopping = True
        self.server.close()
        if self.joining is not None:
            await self.joining.lifecycle.close()
        await self._close_parts()
        await self.store.abandon()
        self.host.close()

    async def _close_parts(self) -> None:
        if self.broker_part is not None:
            await self.broker_part.close()
        if self.registration is not None:
            await self.registration.close()
        if self.quorum_part is not None:
            await self.quorum_part.close()
        elif self.sole_voter is not None:
            await self.sole_voter.stop()
            await self.metadata.close()
        if self.controller_part is not None:
            await self.controller_part.close()


def _authoriser(config: BrokerConfig) -> Authoriser:
    if not config.str("authorizer.class.name"):
        return AllowAll()
    return RulesAuthoriser(
        parse_principals(config.str("super.users")),
        allows_without_rule=config.bool("allow.everyone.if.no.acl.found"),
    )


def _limits(config: BrokerConfig) -> Limits:
    return Limits(
        connections=config.int("max.connections"),
        connections_per_host=config.int("max.connections.per.ip"),
        idle_ms=config.int("connections.max.idle.ms"),
        frame_bytes=config.int("socket.request.max.bytes"),
        frame_bytes_before_authentication=config.int("sasl.server.max.receive.size"),
    )
