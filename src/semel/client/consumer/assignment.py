"""The consumer as its membership sees it: partitions come and go, and the program's listener is told.

A listener is any object with `on_partitions_revoked`, `on_partitions_assigned` and perhaps `on_partitions_lost`, each
plain or async. Without the last, lost partitions are reported as revoked, as Kafka does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from semel.client.cluster import Cluster
from semel.client.consumer.membership.api import Partitions
from semel.client.consumer.position_resolver import PositionResolver
from semel.client.consumer.positions import PartitionReaders
from semel.client.consumer.subscription import Subscription
from semel.client.errors import IllegalState


class Assignment:
    """The Owner of a Membership. Its callbacks run only while the program is inside poll, close or unsubscribe."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        readings: PartitionReaders,
        position_resolver: PositionResolver,
        *,
        before_revoking: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
        look: Callable[[], None],
    ) -> None:
        """`before_revoking` commits, if that is to happen by itself; `changed` follows every change of ownership."""
        self._cluster = cluster
        self._subscription = subscription
        self._readings = readings
        self._position_resolver = position_resolver
        self._before_revoking = before_revoking
        self._changed = changed
        self._look = look
        self._told_by: asyncio.Task[object] | None = None

    def subscription(self) -> frozenset[str]:
        return self._subscription.names

    def pattern(self) -> str | None:
        return self._subscription.broker_pattern

    def owned(self) -> Partitions:
        return self._readings.partitions

    async def revoke(self, partitions: Partitions) -> None:
        try:
            await self._before_revoking()
            await self._tell("on_partitions_revoked", partitions)
        finally:
            self._remove(partitions)

    async def lose(self, partitions: Partitions) -> None:
        has_lost = hasattr(self._subscription.listener, "on_partitions_lost")
        try:
            await self._tell("on_partitions_lost" if has_lost else "on_partitions_revoked", partitions)
        finally:
            self._remove(partitions)

    async def assign(self, partitions: Partitions) -> None:
        """Positions are looked for at once: the listener may ask for them, or seek, which wins."""
        try:
            self._cluster.watch({partition.topic for partition in partitions})
            self._readings.add(sorted(partitions), self._position_resolver.first_phase)
            self._position_resolver.kick()
            await self._tell("on_partitions_assigned", partitions)
        finally:
            self._changed()

    def unsettled(self) -> None:
        self._look()

    def _remove(self, partitions: Partitions) -> None:
        self._readings.remove(partitions)
        if self._subscription.broker_pattern is not None:
            kept = {reading.partition.topic for reading in self._readings}
            self._cluster.unwatch({partition.topic for partition in partitions} - kept)
        self._changed()

    async def _tell(self, method: str, partitions: Partitions) -> None:
        function: Any = getattr(self._subscription.listener, method, None)
        if function is not None:
            self._told_by = asyncio.current_task()
            try:
                result = function(set(partitions))
                if inspect.isawaitable(result):
                    await result
            finally:
                self._told_by = None

    def refuse_listener(self, what: str) -> None:
        """It would wait for itself."""
        if self._told_by is not None and self._told_by is asyncio.current_task():
            raise IllegalState(f"a rebalance listener cannot {what}: return from it first")
