"""A leader with followers that are only spoken for: what it is told, what it asks the controller, who waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from semel.config import BrokerConfig, topic_config
from semel.host.api import FileRange
from semel.log.recovery import load_log
from semel.records.build import build_batch
from semel.replication.in_sync import Proposal
from semel.replication.partition import Fetched, FollowerFetch, Partition
from semel.sim.clock import WALL_START_MS, SimClock
from semel.sim.disk import SimDisk

LEADER, B, C = 1, 2, 3


@dataclass(frozen=True)
class Assigned:
    replicas: tuple[int, ...] = (LEADER, B, C)
    isr: tuple[int, ...] = (LEADER, B, C)
    partition_epoch: int = 0


class FakeContext:
    """The node of a leader, as its partitions ask it. It has been started with broker epoch 70, the others with 7."""

    def __init__(self) -> None:
        self.node_id = LEADER
        self.lag = 30_000
        self.fenced: set[int] = set()
        self.epochs = {B: 7, C: 7}
        self.proposals: list[Proposal] = []
        self.waiting: dict[Partition, None] = {}

    def broker_epoch(self) -> int:
        return 70

    def lag_ms(self) -> int:
        return self.lag

    def can_join(self, node_id: int, broker_epoch: int) -> bool:
        return node_id not in self.fenced and broker_epoch in (-1, self.epochs[node_id])

    def is_stale(self, node_id: int, broker_epoch: int) -> bool:
        return -1 != broker_epoch < self.epochs[node_id]

    def is_alive(self, node_id: int) -> bool:
        return node_id not in self.fenced

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self.proposals.append(proposal)

    def note_waiting(self, partition: Partition) -> None:
        self.waiting[partition] = None


class LeaderWorld:
    """A flush takes `flush_ms`."""

    def __init__(self, assignment: Assigned | None = None, *, flush_ms: float = 10, **overrides: str) -> None:
        self.disk = SimDisk(1, flush_latency_ms=(flush_ms, flush_ms))
        self.disk.make_dirs("/data")
        self.broken: list[BaseException] = []
        self.context = FakeContext()
        config = topic_config({"flush.messages": "1", **overrides}, BrokerConfig({}))
        log, _ = load_log(
            self.disk, "/data/t-0", config, recovery_point=0, start_offset=0, now_ms=WALL_START_MS, was_clean=False
        )
        self.log = log
        self.partition = Partition(
            "t",
            b"\x01" * 16,
            0,
            log,
            0,
            SimClock(asyncio.get_running_loop()),
            self.broken.append,
            context=self.context,
            assignment=assignment or Assigned(),
        )

    def append(self, *values: bytes, acks: int = -1, producer_id: int = -1, sequence: int = -1) -> int:
        """Appends, and returns the last offset."""
        batch = build_batch(
            list(values),
            base_timestamp_ms=WALL_START_MS,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
        )
        return self.partition.append(self.partition.validate(batch), acks).last_offset

    def fetch(
        self,
        node_id: int,
        offset: int,
        *,
        broker_epoch: int = 7,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start: int = 0,
    ) -> Fetched:
        """What a follower gets; the records are let go at once."""
        asked = FollowerFetch(node_id, broker_epoch, leader_epoch, offset, last_fetched_epoch, log_start, 1 << 20)
        fetched = self.partition.fetch_as_replica(asked, at_least_one=True, counts=True)
        if isinstance(fetched.records, FileRange):
            fetched.records.release()
        return fetched
