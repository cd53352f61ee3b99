"""Which replicas are in sync with their leader: what it knows of each, who may join, who has to go, and how far all of
them are. Sans I/O: time, settings and what the metadata says of nodes are arguments.

Rule 1: the committed ISR changes by what the metadata log or the controller's answer says, by nothing else.
Rule 2: while a change is proposed, the maximal ISR counts: all that are in the ISR before or after it. A proposal ends
by news that are newer than it, or by a refusal that is known to have changed nothing.
Rule 3: a replica outside the ISR that has caught up and may join holds the high watermark back, so that it does not
join with a gap; one that has stopped does so no longer than `replica.lag.time.max.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from semel.log.types import Epoch, Offset

UNKNOWN: Offset = -1
NO_BROKER_EPOCH = -1
_NEVER_MS = -(1 << 60)

# Whether a node may join an ISR, as far as the metadata knows: neither fenced nor shutting down, and registered with
# the broker epoch that its last fetch told (-1: it told none).
CanJoin: TypeAlias = Callable[[int, int], bool]


class Assignment(Protocol):
    """Where the metadata log has a partition, and who is in sync."""

    @property
    def replicas(self) -> Sequence[int]: ...

    @property
    def isr(self) -> Sequence[int]: ...

    @property
    def partition_epoch(self) -> Epoch: ...


@dataclass(slots=True)
class FollowerProgress:
    """What the leader knows of one follower. `end_offset` is what it last asked for: it has all before, flushed if the
    topic wants flushes."""

    log_start_offset: Offset = UNKNOWN
    end_offset: Offset = UNKNOWN
    broker_epoch: int = NO_BROKER_EPOCH
    fetched_ms: int = _NEVER_MS
    leader_end_offset: Offset = UNKNOWN  # at that fetch
    caught_up_ms: int = _NEVER_MS  # when it last had all that the leader had


@dataclass(frozen=True, eq=False, slots=True)
class Proposal:
    """An ISR that the leader asks the controller for. `broker_epochs` are those of the last fetches, -1 for unknown."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    partition_epoch: Epoch


class InSync:
    """The replicas of one term of leadership."""

    def __init__(self, leader_id: int, assignment: Assignment, epoch_start: Offset, now_ms: int) -> None:
        """`epoch_start` is where the leader's epoch began in its log."""
        self.leader_id = leader_id
        self.epoch_start = epoch_start
        self.proposal: Proposal | None = None
        self.followers: dict[int, FollowerProgress] = {}
        self._take(assignment, now_ms)

    def _take(self, assignment: Assignment, now_ms: int) -> None:
        self.replicas = tuple(assignment.replicas)
        self.isr = tuple(assignment.isr)
        self.maximal = frozenset(self.isr)
        self.partition_epoch = assignment.partition_epoch
        self.proposal = None
        self._follow_members(now_ms)

    def _follow_members(self, now_ms: int) -> None:
        others = {*self.replicas, *self.maximal} - {self.leader_id}
        known = self.followers
        self.followers = {one: known.get(one) or self._unknown(one, now_ms) for one in sorted(others)}

    def _unknown(self, node_id: int, now_ms: int) -> FollowerProgress:
        """A member of the ISR is given time to come; another must not hold anything back before it has."""
        return FollowerProgress(caught_up_ms=now_ms if node_id in self.maximal else _NEVER_MS)

    def keep_progress(self, earlier: InSync, leader_end: Offset, now_ms: int) -> None:
        """The same node has led the epoch before, and nobody in between: its followers are where they were."""
        for node_id, progress in self.followers.items():
            before = earlier.followers.get(node_id)
            if before is not None:
                progress.log_start_offset, progress.end_offset = before.log_start_offset, before.end_offset
                progress.broker_epoch = before.broker_epoch
                progress.leader_end_offset = leader_end
                progress.fetched_ms = now_ms if node_id in self.maximal else _NEVER_MS

    # -- what the metadata says

    def follow(self, assignment: Assignment, now_ms: int) -> bool:
        """The metadata log names replicas or ISR anew. Whether that was news. What the controller's answer told before
        may come with other replicas: then a proposal made since stays."""
        if assignment.partition_epoch < self.partition_epoch:
            return False
        if assignment.partition_epoch == self.partition_epoch:
            if tuple(assignment.replicas) == self.replicas:
                return False
            self.replicas = tuple(assignment.replicas)
            self._follow_members(now_ms)
            return True
        self._take(assignment, now_ms)
        return True

    # -- what followers say

    def note_fetch(
        self, node_id: int, fetch_offset: Offset, log_start: Offset, leader_end: Offset, broker_epoch: int, now_ms: int
    ) -> None:
        """A follower asks for what comes at `fetch_offset`. `leader_end` was read before the records for it were."""
        progress = self.followers[node_id]
        if fetch_offset >= leader_end:
            progress.caught_up_ms = max(progress.caught_up_ms, now_ms)
        elif fetch_offset >= progress.leader_end_offset != UNKNOWN:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        progress.end_offset, progress.log_start_offset = fetch_offset, log_start
        progress.leader_end_offset, progress.fetched_ms = leader_end, now_ms
        progress.broker_epoch = broker_epoch

    def note_at_end(self, node_id: int, at_ms: int) -> None:
        """A follower that is known to be at the end asked for more at `at_ms`, without naming this partition."""
        progress = self.followers.get(node_id)
        if progress is not None and at_ms > progress.fetched_ms:
            progress.fetched_ms = at_ms
            progress.caught_up_ms = max(progress.caught_up_ms, at_ms)

    # -- how far they are

    def effective_min_isr(self, min_insync_replicas: int) -> int:
        return min(min_insync_replicas, len(self.replicas))

    def has_enough(self, min_insync_replicas: int) -> bool:
        """Whether the committed ISR is large enough to write to."""
        return len(self.isr) >= self.effective_min_isr(min_insync_replicas)

    def may_have_enough(self, min_insync_replicas: int) -> bool:
        """Whether what is committed now is on enough replicas: the maximal ISR has all of it."""
        return len(self.maximal) >= self.effective_min_isr(min_insync_replicas)

    def high_watermark(
        self,
        own_offset: Offset,
        leader_end: Offset,
        now_ms: int,
        lag_ms: int,
        min_insync_replicas: int,
        can_join: CanJoin,
    ) -> Offset:
        """How far the partition is committed by what is known now, or UNKNOWN. `own_offset`: what the leader itself has
        as it wants it from followers. It may be less than what it was before: a high watermark never goes back."""
        if not self.has_enough(min_insync_replicas):
            return UNKNOWN
        least = own_offset
        for node_id, progress in self.followers.items():
            if progress.end_offset < least and (
                node_id in self.maximal
                or (
                    _is_caught_up(progress, leader_end, now_ms, lag_ms)
                    and node_id in self.replicas
                    and can_join(node_id, progress.broker_epoch)
                )
            ):
                least = progress.end_offset
        return least

    def low_watermark(self, own_start: Offset, is_alive: Callable[[int], bool]) -> Offset:
        """Where the latest log of those that are alive begins: before it, nobody has anything any more."""
        starts = [one.log_start_offset for node_id, one in self.followers.items() if is_alive(node_id)]
        return min([own_start, *starts])

    # -- who joins and who goes

    def to_join(self, node_id: int, high_watermark: Offset, can_join: CanJoin) -> tuple[int, ...] | None:
        """The ISR with this follower, if it may join: it has all that is committed, and all that was there when this
        leader began, for the high watermark of a new leader may be an old one."""
        progress = self.followers.get(node_id)
        if (
            self.proposal is not None
            or progress is None
            or node_id in self.isr
            or node_id not in self.replicas
            or progress.end_offset < max(high_watermark, self.epoch_start)
            or not can_join(node_id, progress.broker_epoch)
        ):
            return None
        return (*self.isr, node_id)

    def to_shrink(self, leader_end: Offset, now_ms: int, lag_ms: int) -> tuple[int, ...] | None:
        """The ISR without those that have not caught up for so long, if there are any."""
        if self.proposal is not None:
            return None
        gone = {
            node_id
            for node_id in self.isr
            if node_id in self.followers and not _is_caught_up(self.followers[node_id], leader_end, now_ms, lag_ms)
        }
        return tuple(one for one in self.isr if one not in gone) if gone else None

    def propose(self, isr: tuple[int, ...], leader_broker_epoch: int) -> Proposal:
        """From now on the maximal ISR counts; `adopt`, `withdraw` or newer metadata end that."""
        epochs = tuple(self._broker_epoch(node_id, leader_broker_epoch) for node_id in isr)
        self.proposal = Proposal(isr, epochs, self.partition_epoch)
        self.maximal = frozenset({*self.isr, *isr})
        return self.proposal

    def _broker_epoch(self, node_id: int, leader_broker_epoch: int) -> int:
        if node_id == self.leader_id:
            return leader_broker_epoch
        progress = self.followers.get(node_id)
        return NO_BROKER_EPOCH if progress is None else progress.broker_epoch

    def adopt(self, proposal: Proposal, isr: Iterable[int], partition_epoch: Epoch) -> bool:
        """The controller has written it. False: the metadata log has told newer things already."""
        if self.proposal is not proposal:
            return False
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        self.withdraw(proposal)
        return True

    def withdraw(self, proposal: Proposal) -> None:
        """It is not asked for any more: back to the committed ISR."""
        if self.proposal is proposal:
            self.proposal = None
            self.maximal = frozenset(self.isr)


def _is_caught_up(progress: FollowerProgress, leader_end: Offset, now_ms: int, lag_ms: int) -> bool:
    return progress.end_offset == leader_end or now_ms - progress.caught_up_ms <= lag_ms
