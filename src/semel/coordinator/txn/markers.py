"""Writes the markers of prepared transactions until they are everywhere.

The decision is durable before the first marker is written; from then on nothing can change it. A partition leaves the
transaction when its marker is written, or when the committed metadata no longer has the topic that it was part of.
Nothing else ends the wait: a partition that refuses its marker is tried again, for ever, and after a restart the loaded
state brings the transaction back here. A coordinator that has been replaced stops, and leaves the rest to the next one.

The answer of EndTxn comes when the markers are where its client will look for them (`when_written`): in partitions that
are led here, they are written with the decision; of those that are led elsewhere, the first request has been answered,
with whatever, or a second has passed. So a client reads its own writes as long as nothing is wrong, and a node that is
away costs it a second at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import TopicPartition, Transaction
from semel.log.errors import Refused
from semel.log.types import Epoch, ProducerId
from semel.records.control import ControlType
from semel.rpc.eager_task import EagerTask
from semel.wire.errors import ErrorCode

logger = logging.getLogger("semel.coordinator")

_RETRY_S = 0.1
_LONGEST_RETRY_S = 1.0
# How long an EndTxn waits for answers from other nodes.
LONGEST_ANSWER_WAIT_S = 1.0

Commit = Callable[[], asyncio.Future[None] | None]
"""None when the decision is committed; otherwise a future of it. It is asked again when that ends otherwise, as long as
this node leads."""


class MarkerSink(Protocol):
    """Where markers go: the leader of a partition, in this process or over the wire."""

    def topic_id(self, partition: TopicPartition) -> bytes | None:
        """The id of the partition's topic in the committed metadata; None when there is no such partition."""

    def is_elsewhere(self, partition: TopicPartition) -> bool:
        """Whether its marker has to be sent to another node."""

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


class _Running(NamedTuple):
    """What sees to the end of a transaction, for a coordinator epoch."""

    epoch: Epoch
    task: asyncio.Future[None]


class MarkerWriter:
    """A task for each transaction whose end has to wait. `is_coordinator` tells whether this node still coordinates a
    transactional id in the epoch that its markers carry. `done` is called when all of its markers are written, and is
    False when this node does not.
    """

    def __init__(
        self, sink: MarkerSink, done: Callable[[str, Epoch], bool], is_coordinator: Callable[[str, Epoch], bool]
    ) -> None:
        self._sink = sink
        self._done = done
        self._is_coordinator = is_coordinator
        self._tasks: dict[str, _Running] = {}
        self._answers: dict[str, asyncio.Future[None]] = {}

    def start(self, transaction: Transaction, coordinator_epoch: Epoch, decided: Commit) -> None:
        """Begins when the decision is committed: at once, if it is. Whoever waits for that commit from now on goes on
        after the markers are written that belong to this node, and finds in `when_written` whether there are others."""
        begun = EagerTask(self._see_to(transaction, coordinator_epoch, decided))
        if not begun.is_over:
            self._keep(transaction.transactional_id, coordinator_epoch, begun.in_task())

    def carry_on(self, transaction: Transaction, coordinator_epoch: Epoch, decided: Commit) -> None:
        """What was left over when the state was loaded begins in a turn of its own: the load writes nothing of it. It
        replaces what began after an earlier load."""
        task = asyncio.ensure_future(self._see_to(transaction, coordinator_epoch, decided))
        self._keep(transaction.transactional_id, coordinator_epoch, task)

    def when_written(self, transactional_id: str) -> asyncio.Future[None] | None:
        """What the answer to the end of a transaction has to wait for once the decision is committed; None: nothing."""
        answer = self._answers.get(transactional_id)
        return None if answer is None else asyncio.shield(answer)

    def stop(self, transactional_id: str, coordinator_epoch: Epoch) -> None:
        """This epoch is over. What a newer one has begun goes on."""
        running = self._tasks.get(transactional_id)
        if running is not None and running.epoch <= coordinator_epoch:
            running.task.cancel()

    def _keep(self, transactional_id: str, epoch: Epoch, task: asyncio.Future[None]) -> None:
        before = self._tasks.get(transactional_id)
        if before is not None:
            before.task.cancel()
        self._tasks[transactional_id] = _Running(epoch, task)
        task.add_done_callback(lambda ended: self._forget(transactional_id, ended))

    def _forget(self, transactional_id: str, task: asyncio.Future[None]) -> None:
        running = self._tasks.get(transactional_id)
        if running is not None and running.task is task:
            del self._tasks[transactional_id]

    async def _see_to(self, transaction: Transaction, coordinator_epoch: Epoch, decided: Commit) -> None:
        transactional_id = transaction.transactional_id
        ending = _Ending(self._sink, transaction, coordinator_epoch, self._is_coordinator, self._expect)
        try:
            is_written = await _is_committed(ending, decided) and await ending.write()
            if not is_written or not await self._note_end(transactional_id, coordinator_epoch):
                logger.info("the end of the transaction of %r is left to its next coordinator", transactional_id)
        except Exception:
            # A mistake of ours: the transaction stays as it is decided, and the next start carries it out.
            logger.critical("the markers of a transaction are not written until the next start", exc_info=True)

    def _expect(self, transactional_id: str, answers: list[asyncio.Future[None]]) -> None:
        """Other nodes were asked to write markers: so long the end of the transaction is not answered."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = len(answers)

        def end() -> None:
            timer.cancel()
            if self._answers.get(transactional_id) is told:
                del self._answers[transactional_id]
            if not told.done():
                told.set_result(None)

        def answered(_: asyncio.Future[None]) -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                end()

        timer = told.get_loop().call_later(LONGEST_ANSWER_WAIT_S, end)
        self._answers[transactional_id] = told
        for answer in answers:
            answer.add_done_callback(answered)

    async def _note_end(self, transactional_id: str, coordinator_epoch: Epoch) -> bool:
        """Whether it is noted. The disk may refuse the last record as well as a marker."""
        while True:
            try:
                return self._done(transactional_id, coordinator_epoch)
            except Refused as refusal:
                logger.warning("the end of the transaction of %r is noted later: %s", transactional_id, refusal)
                await asyncio.sleep(_RETRY_S)

    async def close(self) -> None:
        tasks = [running.task for running in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _is_committed(ending: _Ending, decided: Commit) -> bool:
    """False when another coordinator has taken over before the decision was committed: it knows whether it stands."""
    while True:
        try:
            commit = decided()
            if commit is not None:
                await commit
            return True
        except Refused as refusal:
            if not ending.is_ours():
                logger.info("a decision is left to the next coordinator: %s", refusal)
                return False
        await asyncio.sleep(_RETRY_S)
        if not ending.is_ours():
            return False


class _Ending:
    """The markers of one transaction."""

    __slots__ = ("_coordinator_epoch", "_expect", "_is_coordinator", "_sink", "_told", "_transaction")

    def __init__(
        self,
        sink: MarkerSink,
        transaction: Transaction,
        coordinator_epoch: Epoch,
        is_coordinator: Callable[[str, Epoch], bool],
        expect: Callable[[str, list[asyncio.Future[None]]], None],
    ) -> None:
        self._expect = expect
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
            elsewhere: list[asyncio.Future[None]] = []
            attempts = [self._attempt(partition, elsewhere) for partition in left]
            if elsewhere and retry_s == _RETRY_S:
                self._expect(self._transaction.transactional_id, elsewhere)
            if attempts.count(True) == len(attempts):
                break
            try:
                written = [attempt if isinstance(attempt, bool) else await attempt for attempt in attempts]
            except asyncio.CancelledError:
                for answer in elsewhere:
                    answer.cancel()
                raise
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

    def _attempt(self, partition: TopicPartition, elsewhere: list[asyncio.Future[None]]) -> EagerTask[bool] | bool:
        """Whether the marker of one partition is written, at once or when it is committed. Those that other nodes have
        to write are added to `elsewhere`."""
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
        if commit is None:
            return True
        if isinstance(commit, asyncio.Future) and self._sink.is_elsewhere(partition):
            elsewhere.append(commit)
        return EagerTask(self._committed(partition, commit))

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
