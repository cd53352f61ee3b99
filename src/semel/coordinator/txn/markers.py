"""Writes the markers of prepared transactions until they are everywhere.

The decision is durable before the first marker is written; from then on nothing can change it. A partition that cannot
take its marker now is tried again, for ever, and after a restart the loaded state brings the transaction back here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import TopicPartition, Transaction
from semel.log.errors import Refused
from semel.log.types import Epoch, ProducerId
from semel.records.control import ControlType
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

    async def write_marker(
        self,
        partition: TopicPartition,
        kind: ControlType,
        producer_id: ProducerId,
        epoch: Epoch,
        coordinator_epoch: Epoch,
        bumps_epoch: bool,
    ) -> None:
        """Done when the marker is durable; raises Refused."""


class MarkerWriter:
    """One task per transaction that is being ended. `done` is called when all of its markers are written."""

    def __init__(self, sink: MarkerSink, done: Callable[[str], None]) -> None:
        self._sink = sink
        self._done = done
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, transaction: Transaction, coordinator_epoch: Epoch, decided: asyncio.Future[None] | None) -> None:
        """Begins once `decided`, the commit of the decision, is done."""
        task = asyncio.ensure_future(self._write(transaction, coordinator_epoch, decided))
        task.add_done_callback(_report_failure)
        self._tasks[transaction.transactional_id] = task

    async def _write(
        self, transaction: Transaction, coordinator_epoch: Epoch, decided: asyncio.Future[None] | None
    ) -> None:
        if decided is not None:
            await decided
        left = set(transaction.partitions)
        while left:
            partitions = sorted(left)
            results = await asyncio.gather(*(self._one(p, transaction, coordinator_epoch) for p in partitions))
            left = {partition for partition, is_done in zip(partitions, results, strict=True) if not is_done}
            if left:
                await asyncio.sleep(_RETRY_S)
        await self._note_end(transaction.transactional_id)
        del self._tasks[transaction.transactional_id]

    async def _note_end(self, transactional_id: str) -> None:
        """The disk may refuse the last record as well as a marker."""
        while True:
            try:
                return self._done(transactional_id)
            except Refused as refusal:
                logger.warning("the end of the transaction of %r is noted later: %s", transactional_id, refusal)
                await asyncio.sleep(_RETRY_S)

    async def _one(self, partition: TopicPartition, transaction: Transaction, coordinator_epoch: Epoch) -> bool:
        is_commit = transaction.state == TransactionState.PREPARE_COMMIT
        try:
            await self._sink.write_marker(
                partition,
                ControlType.COMMIT if is_commit else ControlType.ABORT,
                transaction.producer_id,
                transaction.epoch,
                coordinator_epoch,
                transaction.bumps_epoch,
            )
        except Refused as refusal:
            if refusal.code in _SETTLED:
                return True
            logger.warning("the marker for %s-%d is tried again: %s", *partition, refusal)
            return False
        return True

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _report_failure(task: asyncio.Task[None]) -> None:
    """A mistake of ours: the transaction stays as it is decided, and the next start carries it out."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.critical("the markers of a transaction are not written until the next start", exc_info=error)
