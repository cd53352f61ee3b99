"""Writes the markers of prepared transactions until they are everywhere.

The decision is durable before the first marker is written; from then on nothing can change it. A partition leaves the
transaction when its marker is written, or when the committed metadata no longer has the topic that it was part of.
Nothing else ends the wait: a partition that refuses its marker is tried again, for ever, and after a restart the loaded
state brings the transaction back here. A coordinator that has been replaced stops, and leaves the rest to the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import TopicPartition, Transaction
from semel.log.errors import Refused
from semel.log.types import Epoch, ProducerId
from semel.records.control import ControlType
from semel.rpc.begun import Begun
from semel.wire.errors import ErrorCode

logger = logging.getLogger("semel.coordinator")

_RETRY_S = 0.1
_LONGEST_RETRY_S = 1.0


class MarkerSink(Protocol):
    """Where markers go: the leader of a partition, in this process or over the wire."""

    def topic_id(self, partition: TopicPartition) -> bytes | None:
        """The id of the partition's topic in the committed metadata; None when there is no such partition."""

    def write_marker(
        self,
        partition: TopicPartition,
        kind: ControlType,
        producer_id: ProducerId,
        epoch: Epoch,
        coordinator_epoch: Epoch,
        bumps_epoch: bool,
    ) -> Awaitable[None] | None:
        """Writes it; raises Refused, at once or when awaited. None when it is durable, otherwise what is done when it
        is. A leader that cannot be reached is a refusal too."""


class MarkerWriter:
    """A task for each transaction whose end has to wait. `done` is called when all of its markers are written;
    `is_coordinator` tells whether this node still coordinates a transactional id in the epoch that its markers carry.
    """

    def __init__(
        self, sink: MarkerSink, done: Callable[[str], None], is_coordinator: Callable[[str, Epoch], bool]
    ) -> None:
        self._sink = sink
        self._done = done
        self._is_coordinator = is_coordinator
        self._tasks: dict[str, asyncio.Future[None]] = {}

    def start(self, transaction: Transaction, coordinator_epoch: Epoch, decided: asyncio.Future[None] | None) -> None:
        """Begins when `decided`, the commit of the decision, is done: at once, if it is. Whoever waits for that commit
        from now on goes on after the markers are written."""
        begun = Begun(self._see_to(transaction, coordinator_epoch, decided))
        if not begun.is_over:
            self._keep(transaction.transactional_id, begun.in_task())

    def carry_on(
        self, transaction: Transaction, coordinator_epoch: Epoch, decided: asyncio.Future[None] | None
    ) -> None:
        """What was left over when the state was loaded begins in a turn of its own: the load writes nothing of it. It
        replaces what began after an earlier load."""
        task = asyncio.ensure_future(self._see_to(transaction, coordinator_epoch, decided))
        self._keep(transaction.transactional_id, task)

    def _keep(self, transactional_id: str, task: asyncio.Future[None]) -> None:
        before = self._tasks.get(transactional_id)
        if before is not None:
            before.cancel()
        self._tasks[transactional_id] = task
        task.add_done_callback(lambda ended: self._forget(transactional_id, ended))

    def _forget(self, transactional_id: str, task: asyncio.Future[None]) -> None:
        if self._tasks.get(transactional_id) is task:
            del self._tasks[transactional_id]

    async def _see_to(
        self, transaction: Transaction, coordinator_epoch: Epoch, decided: asyncio.Future[None] | None
    ) -> None:
        transactional_id = transaction.transactional_id
        try:
            if decided is not None:
                await decided
            ending = _Ending(self._sink, transaction, coordinator_epoch, self._is_coordinator)
            if not await ending.write() or not await self._note_end(ending, transactional_id):
                logger.info("the end of the transaction of %r is left to its next coordinator", transactional_id)
        except Refused as refusal:
            # The decision was not committed: whoever leads the partition now knows whether it stands.
            logger.warning("the end of the transaction of %r is not carried out: %s", transactional_id, refusal)
        except Exception:
            # A mistake of ours: the transaction stays as it is decided, and the next start carries it out.
            logger.critical("the markers of a transaction are not written until the next start", exc_info=True)

    async def _note_end(self, ending: _Ending, transactional_id: str) -> bool:
        """Whether it is noted. The disk may refuse the last record as well as a marker."""
        while True:
            if not ending.is_ours():
                return False
            try:
                self._done(transactional_id)
                return True
            except Refused as refusal:
                logger.warning("the end of the transaction of %r is noted later: %s", transactional_id, refusal)
                await asyncio.sleep(_RETRY_S)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Ending:
    """The markers of one transaction."""

    __slots__ = ("_coordinator_epoch", "_is_coordinator", "_sink", "_told", "_transaction")

    def __init__(
        self,
        sink: MarkerSink,
        transaction: Transaction,
        coordinator_epoch: Epoch,
        is_coordinator: Callable[[str, Epoch], bool],
    ) -> None:
        self._sink = sink
        self._transaction = transaction
        self._coordinator_epoch = coordinator_epoch
        self._is_coordinator = is_coordinator
        # Each reason is told once for a partition, however often it is tried.
        self._told: set[tuple[TopicPartition, ErrorCode]] = set()

    async def write(self) -> bool:
        """Whether every partition has left the transaction; False when another coordinator has taken over."""
        topic_id = self._sink.topic_id
        topic_ids = {partition: topic_id(partition) for partition in sorted(self._transaction.partitions)}
        left = [partition for partition, known in topic_ids.items() if known is not None]
        retry_s = _RETRY_S
        while left:
            # All are written before the first is waited for: their flushes go on at the same time.
            attempts = [self._attempt(partition) for partition in left]
            written = [attempt if isinstance(attempt, bool) else await attempt for attempt in attempts]
            refusing = [partition for partition, is_written in zip(left, written, strict=True) if not is_written]
            if refusing:
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, _LONGEST_RETRY_S)
                if not self.is_ours():
                    return False
            left = [partition for partition in refusing if topic_id(partition) == topic_ids[partition]]
        return True

    def is_ours(self) -> bool:
        """Whether this node still coordinates the transaction, in the epoch that its markers carry."""
        return self._is_coordinator(self._transaction.transactional_id, self._coordinator_epoch)

    def _attempt(self, partition: TopicPartition) -> Begun[bool] | bool:
        """Whether the marker of one partition is written, at once or when its flush is over."""
        transaction = self._transaction
        is_commit = transaction.state == TransactionState.PREPARE_COMMIT
        try:
            commit = self._sink.write_marker(
                partition,
                ControlType.COMMIT if is_commit else ControlType.ABORT,
                transaction.producer_id,
                transaction.epoch,
                self._coordinator_epoch,
                transaction.bumps_epoch,
            )
        except Refused as refusal:
            return self._refused(partition, refusal)
        return True if commit is None else Begun(self._committed(partition, commit))

    async def _committed(self, partition: TopicPartition, commit: Awaitable[None]) -> bool:
        try:
            await commit
        except Refused as refusal:
            return self._refused(partition, refusal)
        return True

    def _refused(self, partition: TopicPartition, refusal: Refused) -> bool:
        if (partition, refusal.code) not in self._told:
            self._told.add((partition, refusal.code))
            logger.warning(
                "%s-%d refuses the marker that ends the transaction of %r (%s): readers of committed records wait "
                "there; the marker is tried again until it is written: %s",
                *partition,
                self._transaction.transactional_id,
                self._transaction.state.label,
                refusal,
            )
        return False
