"""The replicas of a partition that has several, as its leader deals with them: whose fetches count, when the high
watermark moves, and when the ISR has to change.

It belongs to one term of leadership and ends with it. The rules are in `in_sync`; here they meet the log, the settings
and the node. Whoever changes something that the high watermark depends on calls `advance`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from semel.log.errors import Refused
from semel.log.types import Offset
from semel.replication.in_sync import Assignment, InSync, Proposal
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    from semel.replication.partition import Partition


class LeaderContext(Protocol):
    """What a leader asks of its node: settings, what the metadata says of other nodes, and the controller."""

    @property
    def node_id(self) -> int: ...

    def broker_epoch(self) -> int:
        """Of this start of the node."""

    def lag_ms(self) -> int:
        """`replica.lag.time.max.ms`."""

    def can_join(self, node_id: int, broker_epoch: int) -> bool:
        """Whether a node may join an ISR: registered with this epoch (or -1), not fenced, not shutting down."""

    def is_stale(self, node_id: int, broker_epoch: int) -> bool:
        """Whether a node has been started again since, as the metadata knows."""

    def is_alive(self, node_id: int) -> bool: ...

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        """Has the controller asked for another ISR. `Replicas.in_sync` is told what comes of it."""

    def note_waiting(self, partition: Partition) -> None:
        """Somebody waits in it, but not for ever: `expire_waiting` is to be called until nobody does."""


class Replicas:
    def __init__(
        self, partition: Partition, context: LeaderContext, assignment: Assignment, earlier: Replicas | None = None
    ) -> None:
        """`earlier` are those of the epoch before, if this node has led that one, too."""
        self._partition = partition
        self._context = context
        # Who wants to know of anything new behind the high watermark: of every append.
        self.end_watchers: dict[object, Callable[[], None]] = {}
        self._wait_for_start: list[tuple[Offset, asyncio.Future[None]]] = []
        log, now_ms = partition.log, partition.clock.monotonic_ms()
        epoch, start = log.epochs.entries[-1] if log.epochs.entries else (-1, 0)
        epoch_start = start if epoch == partition.leader_epoch else log.end_offset
        self.in_sync = InSync(context.node_id, assignment, epoch_start, now_ms)
        if earlier is not None:
            self.in_sync.keep_progress(earlier.in_sync, log.end_offset, now_ms)
        self._had_enough = self.has_enough

    @property
    def has_enough(self) -> bool:
        """Whether batches with acks=all may be written."""
        return self.in_sync.has_enough(self._partition.log.config.min_insync_replicas)

    @property
    def may_have_enough(self) -> bool:
        """Whether batches with acks=all that are committed now may be called so."""
        return self.in_sync.may_have_enough(self._partition.log.config.min_insync_replicas)

    def too_few(self, code: ErrorCode) -> Refused:
        """What who writes is told when there are not enough."""
        least = self.in_sync.effective_min_isr(self._partition.log.config.min_insync_replicas)
        count = len(self.in_sync.isr)
        replicas = "1 replica is" if count == 1 else f"{count} replicas are"
        return Refused(code, f"{least} replicas have to be in sync (min.insync.replicas), but {replicas}")

    # -- what happens

    def appended(self) -> None:
        if self._partition.log.config.flush_messages != 1:
            self.advance()  # if there is nobody to wait for
        if self.end_watchers:
            self.wake_end_watchers()

    def advance(self) -> None:
        """Moves the high watermark as far as it may be now."""
        partition, context = self._partition, self._context
        log = partition.log
        own_offset = log.flushed_offset if log.config.flush_messages == 1 else log.end_offset
        if own_offset <= log.high_watermark or partition.is_closed:
            return
        partition.advance(
            self.in_sync.high_watermark(
                own_offset,
                log.end_offset,
                partition.clock.monotonic_ms(),
                context.lag_ms(),
                log.config.min_insync_replicas,
                context.can_join,
            )
        )

    def follow(self, assignment: Assignment) -> None:
        """What the metadata log says of this term."""
        if self.in_sync.follow(assignment, self._partition.clock.monotonic_ms()):
            self.changed()

    def changed(self) -> None:
        """ISR, replicas or settings are others: who waits for that, and what was concluded from it."""
        if self.has_enough != self._had_enough:
            self._had_enough = not self._had_enough
            self._partition.raise_generation()
        self.advance()
        self._release_start_waiters()
        self.wake_end_watchers()  # fetches of who is not in sync any more count each time

    def adopt(self, proposal: Proposal, isr: tuple[int, ...], partition_epoch: int) -> None:
        if not self._partition.is_closed and self.in_sync.adopt(proposal, isr, partition_epoch):
            self.changed()

    def withdraw(self, proposal: Proposal) -> None:
        self.in_sync.withdraw(proposal)
        self.advance()

    def note_waiting(self) -> None:
        self._context.note_waiting(self._partition)

    # -- fetches of followers

    def note_fetch(
        self, node_id: int, broker_epoch: int, offset: Offset, log_start: Offset, leader_end: Offset
    ) -> None:
        """A follower's fetch counts: where it is, whether it may join, and what is committed by that."""
        context, partition = self._context, self._partition
        if context.is_stale(node_id, broker_epoch):
            raise Refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"node {node_id} has been started again since its epoch {broker_epoch}",
            )
        in_sync = self.in_sync
        had_start = in_sync.followers[node_id].log_start_offset
        now_ms = partition.clock.monotonic_ms()
        in_sync.note_fetch(node_id, offset, log_start, leader_end, broker_epoch, now_ms)
        if node_id not in in_sync.isr:
            self._propose(in_sync.to_join(node_id, partition.log.high_watermark, context.can_join))
        self.advance()
        if log_start != had_start:
            self._release_start_waiters()

    def note_at_end(self, node_id: int, at_ms: int) -> None:
        """Its session has asked for more at that time, and it had all."""
        if not self._partition.is_closed:
            self.in_sync.note_at_end(node_id, at_ms)

    def is_in_sync(self, node_id: int) -> bool:
        return node_id in self.in_sync.isr

    def wake_end_watchers(self) -> None:
        for wake in list(self.end_watchers.values()):
            wake()

    # -- the ISR

    def check(self) -> None:
        """Now and then: who has not caught up for too long leaves the ISR, or holds nothing back any more."""
        partition = self._partition
        if partition.is_closed:
            return
        now_ms = partition.clock.monotonic_ms()
        self._propose(self.in_sync.to_shrink(partition.log.end_offset, now_ms, self._context.lag_ms()))
        self.advance()
        self._release_start_waiters()

    def _propose(self, isr: tuple[int, ...] | None) -> None:
        if isr is not None:
            proposal = self.in_sync.propose(isr, self._context.broker_epoch())
            self._context.propose(self._partition, proposal)

    # -- where the logs begin

    @property
    def low_watermark(self) -> Offset:
        """Before it, no replica that is alive has anything."""
        return self.in_sync.low_watermark(self._partition.log.start_offset, self._context.is_alive)

    def when_begins_at(self, offset: Offset) -> asyncio.Future[None] | None:
        """None when the low watermark has reached it; otherwise a future of that."""
        if self.low_watermark >= offset:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait_for_start.append((offset, future))
        return future

    def _release_start_waiters(self) -> None:
        if self._wait_for_start:
            low_watermark = self.low_watermark
            left = []
            for offset, future in self._wait_for_start:
                if future.done():
                    continue
                if offset <= low_watermark:
                    future.set_result(None)
                else:
                    left.append((offset, future))
            self._wait_for_start = left

    # -- the end of the term

    def end(self) -> None:
        for _, future in self._wait_for_start:
            if not future.done():
                future.set_exception(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is closed"))
                future.exception()
        self._wait_for_start = []
        self.wake_end_watchers()
