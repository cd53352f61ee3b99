"""The replica of a cluster with one voter, which is this node: elected when it starts, and until it stops.

In a cluster, where others may have read what this node did not keep, the epoch is on disk (`quorum-state`) before
anything is written in it, and its first record says who leads. A node alone has neither: nobody else reads its log, and
older programs can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING

from semel.host.api import Clock, Disk
from semel.log.errors import Refused
from semel.log.group_commit import GroupCommit
from semel.log.types import Epoch
from semel.quorum.metadata_topic import NO_LEADER
from semel.quorum.owner import Owner
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.state_file import QuorumState, read_state, write_state_now
from semel.quorum.term import Term
from semel.quorum.voters import ReplicaKey, VoterNode, VoterSet
from semel.records.build import build_batch
from semel.wire.codec import encode
from semel.wire.errors import ErrorCode
from semel.wire.spec.quorum_records import LEADER_CHANGE, LeaderChangeMessage, QuorumVoter

if TYPE_CHECKING:
    from semel.peer.calls import HostPort

_CONTROL_KEY = Struct(">hh")


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
        *,
        endpoints: Callable[[], Mapping[str, HostPort]] = dict,
        is_alone: bool = False,
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
        self._endpoints = endpoints
        self._is_alone = is_alone
        self._is_stopping = False
        self._more = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.epoch = self._begin_epoch()
        voters = VoterSet([VoterNode(self._key)])
        term = Term(
            self._key,
            self.epoch,
            self._log,
            voters,
            self._group_commit,
            self._disk,
            self._clock,
            is_alone=self._is_alone,
        )
        self.term = term
        term.committed = self._more.set
        self._owner.leads(term)
        if self._is_alone:
            term.advance()
        else:
            committed = term.when_committed(self._write_leader_change(term))
            if committed is not None:
                await committed
        await self._owner.committed_further()
        self._feeding = asyncio.get_running_loop().create_task(self._feed())
        self._feeding.add_done_callback(self._ended)

    def _begin_epoch(self) -> Epoch:
        log, directory = self._log, self._log.log.directory
        newest = max(log.log.epochs.latest, log.snapshot.epoch if log.snapshot.end_offset else -1)
        state = read_state(self._disk, directory)
        if state is not None:
            newest = max(newest, state.epoch)
        if not self._is_alone:
            newest, node_id = max(newest, 0), self._key.node_id  # in epoch 0 nobody leads
            self._disk.make_dirs(directory)
            write_state_now(self._disk, directory, QuorumState(newest + 1, node_id, node_id, (node_id,)))
            self._disk.sync_parents_now(directory)
        return newest + 1

    def _write_leader_change(self, term: Term) -> int:
        node_id = self._key.node_id
        voters = [QuorumVoter(voter_id=node_id)]
        change = LeaderChangeMessage(version=0, leader_id=node_id, voters=voters, granting_voters=voters)
        return term.append(
            build_batch(
                [encode(change, 0)],
                keys=[_CONTROL_KEY.pack(0, LEADER_CHANGE)],
                base_timestamp_ms=self._clock.wall_ms(),
                control=True,
            )
        )

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
        self._is_stopping = True
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)
        term, self.term = self.term, None
        if term is not None:
            term.end()
            self._owner.leads_no_more(term)
        self._group_commit.stop()
        await self._group_commit.when_over()

    # -- for those who follow

    def leading(self, epoch: Epoch) -> Term:
        """The term, for a follower that knows of it; else Refused."""
        if self._is_stopping:
            raise Refused(ErrorCode.BROKER_NOT_AVAILABLE, "this controller is stopping")
        if self.term is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller does not lead yet")
        self.term.check_epoch(epoch)
        return self.term

    def told_leader(self) -> tuple[int, Epoch]:
        return (NO_LEADER if self.term is None else self._key.node_id), self.epoch

    def leader_endpoint(self, listener: str) -> tuple[int, HostPort] | None:
        """Where the leader is reached by a listener of this name."""
        address = self._endpoints().get(listener)
        return None if self.term is None or address is None else (self._key.node_id, address)
