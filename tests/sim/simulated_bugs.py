"""Mistakes for the simulated world to find: those of the checker, and more in fencing, recovery, groups and readers.

with planted("decisions forgotten at a restart"): ...           in this process
semel sim --seeds 1..2000 --patch simulated_bugs:plant_NAME       for as long as it runs, with this folder in PYTHONPATH
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent.parent))

import planted_bugs
from semel.client.consumer import fetched
from semel.coordinator.group.classic_rebalance import ClassicRebalance
from semel.coordinator.group.consumer import ConsumerRequests
from semel.coordinator.group.offsets import GroupOffsets
from semel.coordinator.txn import coordinator
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.state import TransactionState
from semel.log import recovery
from semel.log.log import Log
from semel.quorum.metadata_topic import TOPIC as METADATA_TOPIC
from semel.replication.partition import Partition

_for_ever = ExitStack()


def epoch_not_raised(stack: ExitStack) -> None:
    """A new instance gets the epoch of the one before, which so goes on."""
    initialised = coordinator.initialised

    def as_before(transaction: Any, *rest: Any) -> Any:
        after = initialised(transaction, *rest)
        is_same_id = after.producer_id == transaction.producer_id
        return after._replace(epoch=transaction.epoch) if is_same_id else after

    stack.enter_context(patch.object(coordinator, "initialised", as_before))


def decisions_forgotten(stack: ExitStack) -> None:
    """A transaction that was decided but not marked before a crash stays as it is."""
    stack.enter_context(patch.object(TransactionCoordinator, "_carried_on", lambda self, term: iter(())))


def acknowledged_early(stack: ExitStack) -> None:
    """What was written is acknowledged at once, durable or not; but for the metadata, of which the node itself would
    take notice."""
    right = Partition.when_committed

    def at_once(self: Partition, last_offset: int, timeout_ms: int | None = None) -> Any:
        return right(self, last_offset, timeout_ms) if self.topic == METADATA_TOPIC else None

    stack.enter_context(patch.object(Partition, "when_committed", at_once))


def gaps_without_snapshot(stack: ExitStack) -> None:
    """Compaction and retention also touch what recovery has to read again. (It was so; the simulation found it.)"""
    stack.enter_context(patch.object(Log, "is_settled", lambda self, segment: True))


def checksums_ignored(stack: ExitStack) -> None:
    """A reader takes what it gets."""
    stack.enter_context(patch.object(fetched, "check_crc", lambda data, position, header: True))


def dead_member_stays(stack: ExitStack) -> None:
    """Nobody misses a member that sends no heartbeats."""
    stack.enter_context(patch.object(ClassicRebalance, "_session_expired", lambda self, group, member_id: None))
    stack.enter_context(patch.object(ConsumerRequests, "_overdue", lambda self, *rest: None))


def end_raises_no_epoch(stack: ExitStack) -> None:
    """The end of a transaction does not raise the epoch: what is still on its way from it touches the next one."""
    ended = coordinator.ended_by_client

    def as_before(transaction: Any, transactional_id: str, claimed: Any, is_commit: bool, _: bool, *rest: Any) -> Any:
        return ended(transaction, transactional_id, claimed, is_commit, False, *rest)

    stack.enter_context(patch.object(coordinator, "ended_by_client", as_before))


def old_generation_commits(stack: ExitStack) -> None:
    """In a transaction offsets are taken from members that lost their partitions to others."""
    right = GroupOffsets._check_committer

    def trusting(self: GroupOffsets, group_id: str, committer: Any, *, is_transactional: bool) -> None:
        if not is_transactional:
            right(self, group_id, committer, is_transactional=False)

    stack.enter_context(patch.object(GroupOffsets, "_check_committer", trusting))


def failed_flush_forgotten(stack: ExitStack) -> None:
    """A start takes what it finds for durable after a flush, also if one had failed. (It was so; the simulation found
    it.)"""
    stack.enter_context(patch.object(recovery, "write_again", lambda file, position: None))


def timed_out_by_wall_clock(stack: ExitStack) -> None:
    """How long a transaction has been open is the difference of two wall clock times. (It was so.)"""

    def by_wall_clock(self: TransactionCoordinator) -> None:
        now_ms = self._clock.wall_ms()
        for shard in self.shards.loaded():
            for transaction in list(shard.state.by_id.values()):
                is_open = transaction.state == TransactionState.ONGOING
                if is_open and now_ms - transaction.started_ms >= transaction.timeout_ms:
                    self._prepare(shard, coordinator.ended_by_coordinator(transaction, now_ms, timed_out=True))

    stack.enter_context(patch.object(TransactionCoordinator, "abort_overdue", by_wall_clock))


BUGS: dict[str, Callable[[ExitStack], None]] = {
    **planted_bugs.BUGS,
    "epoch not raised for a new instance": epoch_not_raised,
    "overtaken request served": end_raises_no_epoch,
    "old generation commits in a transaction": old_generation_commits,
    "decisions forgotten at a restart": decisions_forgotten,
    "acknowledged before it is durable": acknowledged_early,
    "gaps where no snapshot follows": gaps_without_snapshot,
    "failed flush forgotten at a start": failed_flush_forgotten,
    "checksums not looked at": checksums_ignored,
    "dead member never missed": dead_member_stays,
    "transactions timed out by the wall clock": timed_out_by_wall_clock,
}


def planted(name: str | None) -> AbstractContextManager[None]:
    """Without a name: no bug."""
    return planted_bugs.planted(name, BUGS)


def __getattr__(name: str) -> Callable[[], None]:
    """For `--patch`: every bug by the name of its function, planted until the process ends."""
    for plant in BUGS.values():
        if f"plant_{plant.__name__}" == name:
            return lambda: plant(_for_ever)
    raise AttributeError(name)
