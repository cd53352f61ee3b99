"""Writes the markers of prepared transactions until they are everywhere.

The decision is durable before the first marker is written; from then on nothing can change it. A partition that cannot
take its marker now is tried again, for ever, and after a restart the loaded state brings the transaction back here.
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
# The partition is gone, or has seen a newer epoch, so that its transaction was ended by other means: nothing to do.
_SETTLED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)


class MarkerSink(Protocol):
    """Where markers go: the leader of a partition."""

    def write_marker(
        self,
        partition: TopicPartition,
        kind: ControlType,
        producer_id: ProducerId,
        epoch: Epoch,
        coordinator_epoch: Epoch,
        bumps_epoch: bool,
    ) -> Awaitable[None] | None:
        """Writes it; raises Refused. None when it is durable, otherwise what is done when it is."""


class MarkerWriter:
    """A task for each transaction whose end has to wait. `done` is called when all of its markers are written."""

    def __init__(self, sink: MarkerSink, done: Callable[[str], None]) -> None:
        self._sink = sink
        self._done = done
        self._tasks: dict[str, asyncio.Future[None]] = {}

    def start(self, transaction: Transaction, coordinator_epoch: Epoch, decided: asyncio.Future[None] | None) -> None:
        """Begins when `decided`, the commit of the decision, is done: at once, if it is. Whoever waits for that commit
        from now on goes on after the markers are written."""
        begun = Begun(self._see_to(transaction, coordinator_epoch, decided))
        if not begun.is_over:
            self._tasks[transaction.transactional_id] = begun.in_task()

    def carry_on(
        self, transaction: Transaction, coordinator_epoch: Epoch, decided: asyncio.Future[None] | None
    ) -> None:
        """What was left over at a restart begins in a turn of its own: the start of a node writes nothing of it."""
        task = asyncio.ensure_future(self._see_to(transaction, coordinator_epoch, decided))
        self._tasks[transaction.transactional_id] = task

    async def _see_to(
        self, transaction: Transaction, coordinator_epoch: Epoch, decided: asyncio.Future[None] | None
    ) -> None:
        try:
            if decided is not None:
                await decided
            await self._write(transaction, coordinator_epoch)
            await self._note_end(transaction.transactional_id)
        except Exception:
            # A mistake of ours: the transaction stays as it is decided, and the next start carries it out.
            logger.critical("the markers of a transaction are not written until the next start", exc_info=True)
        finally:
            self._tasks.pop(transaction.transactional_id, None)

    async def _write(self, transaction: Transaction, coordinator_epoch: Epoch) -> None:
        left = sorted(transaction.partitions)
        while left:
            # All are written before the first is waited for: their flushes go on at the same time.
            attempts = [(partition, self._attempt(partition, transaction, coordinator_epoch)) for partition in left]
            left = [
                partition
                for partition, attempt in attempts
                if not (attempt if isinstance(attempt, bool) else await attempt)
            ]
            if left:
                await asyncio.sleep(_RETRY_S)

    async def _note_end(self, transactional_id: str) -> None:
        """The disk may refuse the last record as well as a marker."""
        while True:
            try:
                return self._done(transactional_id)
            except Refused as refusal:
                logger.warning("the end of the transaction of %r is noted later: %s", transactional_id, refusal)
                await asyncio.sleep(_RETRY_S)

    def _attempt(
        self, partition: TopicPartition, transaction: Transaction, coordinator_epoch: Epoch
    ) -> Begun[bool] | bool:
        """Whether nothing is left to do for a partition, at once or when its flush is over."""
        is_commit = transaction.state == TransactionState.PREPARE_COMMIT
        try:
            commit = self._sink.write_marker(
                partition,
                ControlType.COMMIT if is_commit else ControlType.ABORT,
                transaction.producer_id,
                transaction.epoch,
                coordinator_epoch,
                transaction.bumps_epoch,
            )
        except Refused as refusal:
            return _is_settled(partition, refusal)
        return True if commit is None else Begun(_committed(partition, commit))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _committed(partition: TopicPartition, commit: Awaitable[None]) -> bool:
    try:
        await commit
    except Refused as refusal:
        return _is_settled(partition, refusal)
    return True


def _is_settled(partition: TopicPartition, refusal: Refused) -> bool:
    if refusal.code in _SETTLED:
        return True
    logger.warning("the marker for %s-%d is tried again: %s", *partition, refusal)
    return False
