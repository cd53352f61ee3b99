"""The metadata log of a controller that is the only voter, on a simulated disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from semel.config import BrokerConfig, topic_config
from semel.controller.image import MetadataImage
from semel.controller.metadata import Metadata
from semel.controller.metadata_term import MetadataTerm
from semel.log.group_commit import GroupCommit
from semel.log.recovery import load_log
from semel.peer.errors import Unreachable
from semel.quorum.election import Timeouts
from semel.quorum.leadership import Leadership
from semel.quorum.quorum_replica import QuorumReplica
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.sole_voter import SoleVoter
from semel.quorum.voters import ReplicaKey, VoterNode, VoterSet
from semel.rpc.slices import Slices
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.wire.spec.metadata_records import MetadataRecord

DIRECTORY = "/data/__cluster_metadata-0"


class Nobody:
    """There is no other node."""

    async def call(self, node_id: int, *_: Any, **__: Any) -> Any:
        raise Unreachable(f"there is no node {node_id}")


class LedMetadata:
    """`open` it; then there is a term, and whoever decides has it."""

    def __init__(
        self,
        disk: SimDisk,
        *,
        node_id: int = 1,
        is_alone: bool = True,
        listener: Callable[[Sequence[MetadataRecord]], None] = lambda records: None,
        on_broken: Callable[[BaseException], None] = lambda error: None,
        was_clean: bool = False,
    ) -> None:
        disk.make_dirs("/data")
        disk.sync_dir_now("/")
        config = topic_config({"flush.messages": "1"}, BrokerConfig())
        clock = SimClock(asyncio.get_running_loop())  # type: ignore[arg-type]
        log, _ = load_log(
            disk, DIRECTORY, config, recovery_point=0, start_offset=0, now_ms=clock.wall_ms(), was_clean=was_clean
        )
        self.log = ReplicatedLog(disk, log, clock)
        self.metadata = Metadata(disk, clock, self.log, listener, lambda: None, on_broken, Slices(clock))
        key, group_commit = ReplicaKey(node_id), GroupCommit(log, on_broken)
        self.replica: SoleVoter | QuorumReplica
        if is_alone:
            self.replica = SoleVoter(key, self.log, group_commit, self.metadata, disk, clock, on_broken)
        else:
            self.replica = QuorumReplica(
                "cluster",
                key,
                VoterSet([VoterNode(key)]),
                self.log,
                group_commit,
                self.metadata,
                Leadership((), (), 0, Random(1), node_id),
                Nobody(),
                Nobody(),
                disk,
                clock,
                Random(1),
                on_broken,
                timeouts=Timeouts(),
                keeps=True,
            )

    async def open(self) -> MetadataTerm:
        await self.metadata.open(may_drop=False)
        if isinstance(self.replica, SoleVoter):
            await self.replica.start()
        else:
            self.replica.start()
            assert self.replica.term is not None, "one voter alone is elected at once"
            await self.metadata.until(lambda: self.metadata.next_offset > 0)
            await asyncio.sleep(0.001)
        return self.term

    @property
    def term(self) -> MetadataTerm:
        assert self.metadata.term is not None
        return self.metadata.term

    @property
    def committed(self) -> MetadataImage:
        return self.metadata.committed

    @property
    def decided(self) -> MetadataImage:
        return self.term.decided

    @property
    def next_offset(self) -> int:
        return self.term.next_offset

    def write(self, records: Sequence[MetadataRecord]) -> asyncio.Future[None]:
        return self.term.write(records)

    async def when_committed(self) -> None:
        committed = self.term.when_committed()
        if committed is not None:
            await committed

    async def snapshot(self) -> None:
        await self.metadata.snapshot()
