"""What the partitions that this node leads ask of it: settings, what the metadata says of other nodes, the controller,
and that somebody looks at the time for them.

Two sweeps for all partitions, instead of a timer for each: every half `replica.lag.time.max.ms` for followers that have
fallen behind, and ten times a second for requests whose time is up, as long as any waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from semel.broker.cluster_view import ClusterView
from semel.broker.isr_changes import AlterPartition, IsrChanges
from semel.broker.node_info import NodeInfo
from semel.host.api import Clock
from semel.metrics.node_counts import IsrCounts
from semel.replication.in_sync import NO_BROKER_EPOCH, Proposal
from semel.replication.partition import Partition

_EXPIRE_S = 0.1
# Partitions that are looked at in one turn of the loop.
_AT_ONCE = 100


class Leading:
    """The LeaderContext of a node."""

    def __init__(
        self,
        node: NodeInfo,
        cluster: ClusterView,
        clock: Clock,
        alter_partition: AlterPartition,
        on_broken: Callable[[BaseException], None],
        counts: IsrCounts,
    ) -> None:
        self.node_id = node.node_id
        self._on_broken = on_broken
        self._node = node
        self._cluster = cluster
        self._clock = clock
        self._changes = IsrChanges(node, alter_partition, on_broken, counts)
        self._waiting: dict[Partition, None] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._look = asyncio.Event()
        self._sweep: asyncio.Task[None] | None = None

    # -- settings and other nodes

    def broker_epoch(self) -> int:
        return self._node.broker_epoch

    def lag_ms(self) -> int:
        return self._node.config.int("replica.lag.time.max.ms")

    def can_join(self, node_id: int, broker_epoch: int) -> bool:
        broker = self._cluster.image.brokers.get(node_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and broker_epoch in (NO_BROKER_EPOCH, broker.broker_epoch)
        )

    def is_stale(self, node_id: int, broker_epoch: int) -> bool:
        broker = self._cluster.image.brokers.get(node_id)
        return broker is not None and NO_BROKER_EPOCH != broker_epoch < broker.broker_epoch

    def is_alive(self, node_id: int) -> bool:
        broker = self._cluster.image.brokers.get(node_id)
        return broker is not None and not broker.fenced

    # -- the controller

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self._changes.propose(partition, proposal)

    # -- the time

    def note_waiting(self, partition: Partition) -> None:
        self._waiting[partition] = None
        if self._expiry is None:
            self._expiry = asyncio.get_running_loop().call_later(_EXPIRE_S, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now_ms = self._clock.monotonic_ms()
        self._waiting = {one: None for one in self._waiting if one.expire_waiting(now_ms)}
        if self._waiting:
            self._expiry = asyncio.get_running_loop().call_later(_EXPIRE_S, self._expire)

    def start(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        self._sweep = asyncio.get_running_loop().create_task(self._keep_looking(partitions))

    def look_soon(self) -> None:
        """Nodes are fenced, or not any more: who holds the high watermark back may be others now."""
        self._look.set()

    async def _keep_looking(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        try:
            while True:
                # Not by wait_for, which forgets in Python 3.11 that it was cancelled if it was also woken.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.lag_ms() / 2000):
                        await self._look.wait()
                self._look.clear()
                await self._check_all(partitions())
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._on_broken(error)

    async def _check_all(self, partitions: Iterable[Partition]) -> None:
        looked_at = 0
        for partition in list(partitions):
            if partition.replicas is not None:
                partition.replicas.check()
                looked_at += 1
                if looked_at % _AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
            await asyncio.gather(self._sweep, return_exceptions=True)
        await self._changes.close()
