"""What a replica of the metadata log tells the one that it is held for, who knows what the records mean; and what it
answers to others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from semel.log.types import Epoch
from semel.quorum.snapshot_files import SnapshotId
from semel.quorum.term import Term
from semel.quorum.voters import ReplicaKey
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:  # a node alone calls nobody
    from semel.peer.calls import HostPort
    from semel.quorum.election import VoteAnswer, VoteQuestion


class Owner(Protocol):
    """`committed_further` and `loaded` are awaited by one task, one at a time, whether this node leads or follows. The
    other two are called in between, and must not wait for anything.

    What was committed is never cut; what was not may be, after `leads_no_more`.
    """

    async def committed_further(self) -> None:
        """The log is committed further than before, or again after a snapshot was loaded: see its committed end."""

    async def loaded(self, snapshot: SnapshotId) -> None:
        """The log goes on from a snapshot that the leader has sent: what was read of it before is to be forgotten."""

    def leads(self, term: Term) -> None:
        """This node was elected. The first record of the term is written, and not committed yet."""

    def leads_no_more(self, term: Term) -> None:
        """The term is over, for whatever reason: once for each `leads`, before anything of a later epoch is taken."""


class LogReplica(Protocol):
    """A replica, for those who follow the log from it."""

    term: Term | None
    """In which it leads."""

    def leading(self, epoch: Epoch) -> Term:
        """The term, for a follower that knows of it; else Refused."""

    def told_leader(self) -> tuple[int, Epoch]:
        """Who leads, as far as it knows, and the epoch."""

    def leader_endpoint(self, listener: str) -> tuple[int, HostPort] | None:
        """Where the leader is reached by a listener of this name."""


class Voting(Protocol):
    """A replica, for the voters of its quorum. All raise Refused as long as it has not started."""

    def asked_for_vote(self, question: VoteQuestion) -> VoteAnswer: ...

    def epoch_begun(
        self, epoch: Epoch, leader_id: int, asked: ReplicaKey | None, endpoint: HostPort | None
    ) -> ErrorCode: ...

    def epoch_ended(self, epoch: Epoch, leader_id: int, preferred: list[ReplicaKey]) -> ErrorCode: ...
