"""The replica of a node that is a cluster of its own: elected when it starts, and until it stops.

It asks nobody and tells nobody. Nobody else reads its log, so there is no `quorum-state` and no record that says who
leads, and older programs can read what it writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from semel.host.api import Clock, Disk
from semel.log.errors import Refused
from semel.log.group_commit import GroupCommit
from semel.log.types import Epoch
from semel.quorum.metadata_topic import NO_LEADER
from semel.quorum.owner import Owner
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.state_file import read_state
from semel.quorum.term import Term
from semel.quorum.voters import ReplicaKey, VoterNode, VoterSet
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    from semel.peer.calls import HostPort


class SoleVoter:
    """`start` when the owner has read its snapshot; the owner decides when it returns."""

    def __init__(
        self,
        key: ReplicaKey,
        log: ReplicatedLog,
        group_commit: GroupCommit,
        owner: Owner,
        disk: Disk,
        clock: Clock,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self.term: Term | None = None
        self.epoch: Epoch = -1
        self._key = key
        self._log = log
        self._group_commit = group_commit
        self._owner = owner
        self._disk = disk
        self._clock = clock
        self._on_broken = on_broken
        self._more = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        log = self._log
        newest = max(log.log.epochs.latest, log.snapshot.epoch if log.snapshot.end_offset else -1)
        state = read_state(self._disk, log.log.directory)  # if it was one node of a cluster before
        self.epoch = max(newest, -1 if state is None else state.epoch) + 1
        voters = VoterSet([VoterNode(self._key)])
        self.term = term = Term(
            self._key, self.epoch, log, voters, self._group_commit, self._disk, self._clock, is_alone=True
        )
        term.committed = self._more.set
        self._owner.leads(term)
        term.advance()
        await self._owner.committed_further()
        self._feeding = asyncio.get_running_loop().create_task(self._feed())
        self._feeding.add_done_callback(self._ended)

    async def _feed(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            await self._owner.committed_further()

    def _ended(self, feeding: asyncio.Task[None]) -> None:
        error = None if feeding.cancelled() else feeding.exception()
        if error is not None:
            self._on_broken(error)

    async def stop(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)
        term, self.term = self.term, None
        if term is not None:
            term.end()
            self._owner.leads_no_more(term)
        self._group_commit.stop()
        await self._group_commit.when_over()

    # -- for those who ask how it stands

    def leading(self, epoch: Epoch) -> Term:
        if self.term is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller does not lead")
        self.term.check_epoch(epoch)
        return self.term

    def told_leader(self) -> tuple[int, Epoch]:
        return (NO_LEADER if self.term is None else self._key.node_id), self.epoch

    def leader_endpoint(self, listener: str) -> tuple[int, HostPort] | None:
        return None
