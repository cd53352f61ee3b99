"""What a node with the role of a controller has: the controller that decides while this node leads the metadata log,
and what it is asked by other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from semel.broker.cluster_view import ClusterView
from semel.broker.controller_channel import LocalController
from semel.broker.inner_requests import InnerRequests
from semel.broker.node_info import NodeInfo
from semel.broker.roles import ControllerRoles
from semel.config import ListenerKind, NodeListener
from semel.config.listeners import PROTOCOLS
from semel.controller.bootstrap import first_credentials, first_features
from semel.controller.controller import Controller
from semel.controller.levels import LEVEL_OF_A_NODE_ALONE, features_at
from semel.controller.metadata import Metadata
from semel.controller.metadata_term import MetadataTerm
from semel.controller.upkeep import Upkeep
from semel.host.api import Host
from semel.log.errors import Refused
from semel.quorum.owner import LogReplica, Voting
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import BrokerEndpoint


class ControllerPart:
    """`follow_term` is told by the metadata when this node begins to decide, and when it has ended."""

    def __init__(
        self,
        host: Host,
        node: NodeInfo,
        metadata: Metadata,
        replica: LogReplica,
        on_broken: Callable[[BaseException], None],
        bound: Mapping[str, NodeListener],
        slices: Slices,
    ) -> None:
        self._host = host
        self._node = node
        self._on_broken = on_broken
        self._upkeep: Upkeep | None = None
        self._ended: list[Upkeep] = []
        self._active: Controller | None = None
        self.metadata = metadata
        self.replica = replica
        self.channel = LocalController(self.current, lambda: metadata.committed, slices)
        self.inner_requests = InnerRequests()
        self.roles = ControllerRoles(
            node=node,
            listeners={
                listener.name: listener.kind
                for listener in node.config.layout.listeners
                if ListenerKind.CONTROLLERS in listener.kind
            },
            bound=bound,
            cluster=ClusterView(lambda: metadata.committed, lambda: metadata.next_offset),
            controller=self.channel,
            active_controller=self.channel.active,
            replica=replica,
            voting=cast(Voting, replica),  # a node alone has no listener where it could be asked
            inner_requests=self.inner_requests,
            slices=slices,
            clock=host.clock,
        )

    # -- the active controller

    @property
    def is_active(self) -> bool:
        """Whether this node decides."""
        return self._active is not None and not self._active.metadata.is_over

    def current(self) -> Controller:
        """Raises Refused while this controller is not the active one."""
        if self._active is None or self._active.metadata.is_over:
            raise Refused(ErrorCode.NOT_CONTROLLER, "this controller is not the active one")
        return self._active

    def follow_term(self, term: MetadataTerm | None) -> None:
        """A term is a controller of its own: what the one before knew of brokers, and had decided, is not its own."""
        if self._upkeep is not None:
            self._upkeep.stop()
            self._ended = [one for one in self._ended if not one.is_over] + [self._upkeep]
        self._active = self._upkeep = None
        if term is None:
            return
        node, host = self._node, self._host
        self._active = controller = Controller(term, node.config, host.random, host.clock, lambda: node.cluster_id)
        if node.config.layout.is_alone:
            return
        try:
            root = node.config.log_dir()
            more = first_credentials(host.disk, root)
            controller.activate(first_features(host.disk, root), node.broker_epoch, more)
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

    async def close(self) -> None:
        """After the replica, which ends the term."""
        for upkeep in self._ended:
            await upkeep.close()
