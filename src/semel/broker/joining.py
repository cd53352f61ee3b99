"""How a broker comes into its cluster, and leaves it: registration, first image, coordinators, service, and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from semel.broker.broker_part import BrokerPart
from semel.broker.flushed_epoch import FlushedEpoch
from semel.broker.lifecycle import BrokerLifecycle, RegistrationChannel
from semel.broker.node_info import NodeInfo
from semel.config import ListenerKind, NodeListener
from semel.config.listeners import PROTOCOLS
from semel.controller.levels import SUPPORTED_FEATURES
from semel.host.api import Host
from semel.log.store import LogStore
from semel.wire.spec.broker_registration import BrokerFeature, BrokerListener


class Joining:
    """`current_offset` is the offset of the last record that this node's image has; `until` waits for something to be
    true of that."""

    def __init__(
        self,
        host: Host,
        node: NodeInfo,
        store: LogStore,
        flushed_epoch: FlushedEpoch,
        bound: Mapping[str, NodeListener],
        channel: RegistrationChannel,
        current_offset: Callable[[], int],
        until: Callable[[Callable[[], bool]], Awaitable[None]],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._until = until
        self._store = store
        self._flushed_epoch = flushed_epoch
        self._node = node
        self.lifecycle = BrokerLifecycle(
            node,
            channel,
            current_offset,
            incarnation_id=host.random.randbytes(16),
            listeners=[
                BrokerListener(
                    name=one.name,
                    host=one.advertised_host,
                    port=one.advertised_port,
                    security_protocol=PROTOCOLS[one.protocol],
                )
                for one in bound.values()
                if one.advertised_host is not None and ListenerKind.CONTROLLERS not in one.kind
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
                for name, (least, most) in SUPPORTED_FEATURES.items()
            ],
            log_dirs=node.directories,
            previous_epoch=max(store.previous_broker_epoch, flushed_epoch.read()),
            on_broken=on_broken,
            on_new_epoch=flushed_epoch.write,
        )

    async def join(self, broker: BrokerPart) -> None:
        """Returns when the controller has unfenced this broker. Raises CannotJoin.

        The first image that is applied has this start's own registration in it: nothing in there makes this broker the
        leader of what it led before. Its coordinators are loaded before anyone is told of it.
        """
        lifecycle = self.lifecycle
        await lifecycle.register()
        lifecycle.start_heartbeats()
        await lifecycle.until_caught_up()
        await self._flushed_epoch.write(self._node.broker_epoch)
        await broker.apply_image()
        broker.start()
        await lifecycle.until_unfenced()
        # The controller's answer may come before the record of it, and a client would not find this broker here.
        await self._until(lambda: self._node.node_id in broker.cluster.image.brokers and not self._is_fenced(broker))

    def _is_fenced(self, broker: BrokerPart) -> bool:
        return broker.cluster.image.brokers[self._node.node_id].fenced

    async def leave(self) -> None:
        """Before a clean stop: others lead what this broker led."""
        if self._node.config.bool("controlled.shutdown.enable"):
            await self.lifecycle.until_let_go()
        await self.lifecycle.close()
        self._store.broker_epoch = self._node.broker_epoch
