"""What a node with the role of a controller has: the metadata log, which it leads, and the decisions written to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

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
from semel.controller.metadata_leader import MetadataLeader
from semel.controller.metadata_log import MetadataLog
from semel.controller.upkeep import Upkeep
from semel.host.api import Host
from semel.log.log import Log
from semel.rpc.slices import Slices
from semel.wire.spec.controller_registration import (
    ControllerFeature,
    ControllerListener,
    ControllerRegistrationRequest,
)
from semel.wire.spec.metadata_records import BrokerEndpoint, MetadataRecord

_SNAPSHOT_CHECK_S = 1.0


class ControllerPart:
    """With one voter it is the active controller from its start on."""

    def __init__(
        self,
        host: Host,
        node: NodeInfo,
        log: Log,
        on_broken: Callable[[BaseException], None],
        committed: Callable[[Sequence[MetadataRecord]], None],
        bound: Mapping[str, NodeListener],
        slices: Slices,
    ) -> None:
        self._node = node
        self._disk = host.disk
        self._random = host.random
        self._on_broken = on_broken
        self._upkeep: Upkeep | None = None
        self._snapshots: asyncio.Task[None] | None = None
        layout = node.config.layout
        leads_as = None if layout.is_alone else node.node_id
        self.metadata = MetadataLog(host.disk, host.clock, log, on_broken, committed, leads_as=leads_as)
        self.controller = Controller(self.metadata, node.config, host.random, host.clock, lambda: node.cluster_id)
        self.channel = LocalController(self.controller, slices)
        metadata = self.metadata
        cluster = ClusterView(lambda: metadata.committed, lambda: metadata.next_offset)
        self.inner_requests = InnerRequests()
        self.roles = ControllerRoles(
            node=node,
            listeners={
                listener.name: listener.kind
                for listener in layout.listeners
                if ListenerKind.CONTROLLERS in listener.kind
            },
            bound=bound,
            cluster=cluster,
            controller=self.channel,
            active_controller=self.channel.active,
            quorum=MetadataLeader(node.node_id, node.directory_id, metadata, host.disk, host.clock),
            inner_requests=self.inner_requests,
            slices=slices,
            clock=host.clock,
        )

    def current_offset(self) -> int:
        """The offset of the last record that is committed."""
        return self.metadata.log.high_watermark - 1

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits for something that has been decided to be true of the committed image."""
        committed = self.metadata.when_committed()
        if committed is not None and not is_so():
            await committed

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
        await self.controller.start_broker(end_points, rack, features_at(LEVEL_OF_A_NODE_ALONE), self._node.directories)
        self._node.broker_epoch = self.metadata.committed.brokers[self._node.node_id].broker_epoch
        if self.metadata.wants_snapshot:
            await self.metadata.snapshot()

    async def begin(self) -> None:
        """Becomes the active controller of a cluster."""
        self._upkeep = Upkeep(self.controller, self._on_broken)
        self.controller.activate(first_features(self._disk, self._node.config.log_dir()))
        committed = self.metadata.when_committed()
        if committed is not None:
            await committed
        if self.metadata.committed.metadata_version >= CONTROLLER_REGISTRATION:
            await self.channel.active.register_controller(self._registration())
        if self.metadata.wants_snapshot:
            await self.metadata.snapshot()
        self._upkeep.start()
        self._snapshots = asyncio.get_running_loop().create_task(self._write_snapshots())
        self._snapshots.add_done_callback(self._ended)

    async def _write_snapshots(self) -> None:
        while True:
            await asyncio.sleep(_SNAPSHOT_CHECK_S)
            if self.metadata.wants_snapshot:
                await self.metadata.snapshot()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_broken(error)

    def _registration(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._node.node_id,
            incarnation_id=self._random.randbytes(16),
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
        if self._upkeep is not None:
            await self._upkeep.close()
        if self._snapshots is not None:
            self._snapshots.cancel()
            await asyncio.gather(self._snapshots, return_exceptions=True)
        await self.metadata.close()
