"""The metadata log of a controller that is the only voter, on a simulated disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from semel.config import BrokerConfig, topic_config
from semel.controller.image import MetadataImage
from semel.controller.metadata import Metadata
from semel.controller.metadata_term import MetadataTerm
from semel.log.group_commit import GroupCommit
from semel.log.recovery import load_log
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.sole_voter import SoleVoter
from semel.quorum.voters import ReplicaKey
from semel.rpc.slices import Slices
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.wire.spec.metadata_records import MetadataRecord

DIRECTORY = "/data/__cluster_metadata-0"


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
        self.replica = SoleVoter(
            ReplicaKey(node_id),
            self.log,
            GroupCommit(log, on_broken),
            self.metadata,
            disk,
            clock,
            on_broken,
            is_alone=is_alone,
        )

    async def open(self) -> MetadataTerm:
        await self.metadata.open(may_drop=False)
        await self.replica.start()
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
