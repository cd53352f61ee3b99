"""What a node with the role of a controller has: a replica of the metadata log that votes, and, while it leads, the
controller that decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from semel.broker.cluster_view import ClusterView
from semel.broker.controller_channel import LocalController
from semel.broker.inner_requests import InnerRequests
from semel.broker.node_info import NodeInfo
from semel.broker.roles import ControllerRoles
from semel.config import ListenerKind, NodeListener
from semel.config.listeners import PROTOCOLS
from semel.controller.bootstrap import first_features
from semel.controller.controller import Controller
from semel.controller.levels import CONTROLLER_REGISTRATION, LEVEL_OF_A_NODE_ALONE, SUPPORTED_FEATURES, features_at
from semel.controller.metadata import Metadata
from semel.controller.metadata_term import MetadataTerm
from semel.controller.upkeep import Upkeep
from semel.host.api import Host
from semel.log.errors import Refused
from semel.log.group_commit import GroupCommit
from semel.log.log import Log
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.sole_voter import SoleVoter
from semel.quorum.voters import ReplicaKey
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.controller_registration import (
    ControllerFeature,
    ControllerListener,
    ControllerRegistrationRequest,
)
from semel.wire.spec.metadata_records import BrokerEndpoint, MetadataRecord

if TYPE_CHECKING:  # a node alone calls nobody
    from semel.peer.calls import HostPort


class ControllerPart:
    """Holds the replica of the metadata log, and decides while that leads. With one voter it is the active controller
    from its start on."""

    def __init__(
        self,
        host: Host,
        node: NodeInfo,
        log: Log,
        on_broken: Callable[[BaseException], None],
        committed: Callable[[Sequence[MetadataRecord]], None],
        reloaded: Callable[[], None],
        bound: Mapping[str, NodeListener],
        slices: Slices,
    ) -> None:
        self._host = host
        self._node = node
        self._on_broken = on_broken
        self._upkeep: Upkeep | None = None
        self._ended: list[Upkeep] = []
        self._active: Controller | None = None
        self._log = ReplicatedLog(host.disk, log, host.clock)
        layout = node.config.layout
        self.metadata = metadata = Metadata(
            host.disk, host.clock, self._log, committed, reloaded, on_broken, slices, on_term=self._follow_term
        )
        self.replica = SoleVoter(
            ReplicaKey(node.node_id, node.directory_id),
            self._log,
            GroupCommit(log, on_broken),
            metadata,
            host.disk,
            host.clock,
            on_broken,
            endpoints=self._endpoints,
            is_alone=layout.is_alone,
        )
        self.channel = LocalController(self.current, lambda: metadata.committed, slices)
        self.inner_requests = InnerRequests()
        self.roles = ControllerRoles(
            node=node,
            listeners={
                listener.name: listener.kind
                for listener in layout.listeners
                if ListenerKind.CONTROLLERS in listener.kind
            },
            bound=bound,
            cluster=ClusterView(lambda: metadata.committed, lambda: metadata.next_offset),
            controller=self.channel,
            active_controller=self.channel.active,
            replica=self.replica,
            inner_requests=self.inner_requests,
            slices=slices,
            clock=host.clock,
        )

    # -- the active controller

    def current(self) -> Controller:
        """Raises Refused while this controller is not the active one."""
        if self._active is None or self._active.metadata.is_over:
            raise Refused(ErrorCode.NOT_CONTROLLER, "this controller is not the active one")
        return self._active

    @property
    def is_active(self) -> bool:
        """Whether this controller decides."""
        return self._active is not None and not self._active.metadata.is_over

    def _follow_term(self, term: MetadataTerm | None) -> None:
        """A term is a controller of its own: what the one before knew of brokers, and had decided, is not its own."""
        if self._upkeep is not None:
            self._upkeep.stop()
            self._ended.append(self._upkeep)
        self._active = self._upkeep = None
        if term is None:
            return
        node, host = self._node, self._host
        self._active = controller = Controller(term, node.config, host.random, host.clock, lambda: node.cluster_id)
        if node.config.layout.is_alone:
            return
        try:
            controller.activate(first_features(host.disk, node.config.log_dir()), node.broker_epoch)
        except Refused as refusal:
            if refusal.code != ErrorCode.NOT_CONTROLLER:
                raise
        else:
            self._upkeep = Upkeep(controller, self._on_broken)
            self._upkeep.start()

    def follow_config(self) -> None:
        if self._active is not None:
            self._active.config = self._node.config

    # -- starting

    async def open(self) -> None:
        """Reads what the log says. Raises what is damaged. With one voter, this node is the active controller then."""
        await self.metadata.open(may_drop=False)
        await self.replica.start()

    def current_offset(self) -> int:
        """The offset of the last record that is committed, as far as this node's image has it."""
        return self.metadata.next_offset - 1

    async def begin_alone(self, listeners: Iterable[NodeListener]) -> None:
        """A start of a node that is a cluster of its own: it needs nobody to let it serve."""
        end_points = [
            BrokerEndpoint(
                name=one.name,
                host=one.advertised_host,
                port=one.advertised_port,
                security_protocol=PROTOCOLS[one.protocol],
            )
            for one in listeners
            if one.advertised_host is not None and ListenerKind.CONTROLLERS not in one.kind
        ]
        rack = self._node.config.text("broker.rack")
        await self.current().start_broker(end_points, rack, features_at(LEVEL_OF_A_NODE_ALONE), self._node.directories)
        self._node.broker_epoch = self.metadata.committed.brokers[self._node.node_id].broker_epoch

    async def begin(self) -> None:
        """Becomes the active controller of a cluster."""
        committed = self.current().metadata.when_committed()
        if committed is not None:
            await committed
        if self.metadata.committed.metadata_version >= CONTROLLER_REGISTRATION:
            await self.channel.active.register_controller(self._registration())

    def _endpoints(self) -> dict[str, HostPort]:
        from semel.peer.calls import HostPort

        return {
            one.name: HostPort(one.advertised_host or one.host, one.advertised_port)
            for one in self.roles.bound.values()
            if ListenerKind.CONTROLLERS in one.kind
        }

    def _registration(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._node.node_id,
            incarnation_id=self._host.random.randbytes(16),
            listeners=[
                ControllerListener(
                    name=one.name,
                    host=one.advertised_host or one.host,
                    port=one.advertised_port,
                    security_protocol=PROTOCOLS[one.protocol],
                )
                for one in self.roles.bound.values()
                if ListenerKind.CONTROLLERS in one.kind
            ],
            features=[
                ControllerFeature(name=name, min_supported_version=least, max_supported_version=most)
                for name, (least, most) in SUPPORTED_FEATURES.items()
            ],
        )

    async def close(self) -> None:
        await self.replica.stop()
        await self.metadata.close()
        for upkeep in self._ended:
            await upkeep.close()
