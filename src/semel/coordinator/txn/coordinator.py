"""The transaction coordinator: who a transactional id's producer is, what is in its transaction, and how it ends.

Decisions are pure (`decisions`); here they are appended to the shard of the transactional id, replayed, and answered
when they are durable. A request that finds the last transaction still being ended waits for it, for a moment: the
markers are usually a flush away, and clients that are sent away come back much later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator

from semel.config import BrokerConfig
from semel.coordinator.errors import as_coordinator, coordinator_error
from semel.coordinator.shard import RECORDS_AT_ONCE, Shard
from semel.coordinator.shards import Shards
from semel.coordinator.topic_names import TRANSACTIONS_TOPIC
from semel.coordinator.txn.decisions import (
    NOBODY,
    Identity,
    StillEnding,
    check_may_raise,
    check_owner,
    completed,
    ended_by_client,
    ended_by_coordinator,
    has_timed_out,
    initialised,
    needs_new_id,
    with_partitions,
)
from semel.coordinator.txn.markers import MarkerSink, MarkerWriter
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.term import TransactionTerm
from semel.coordinator.txn.transactions import TopicPartition, Transaction, Transactions, entry
from semel.coordinator.txn.upkeep import TransactionUpkeep
from semel.coordinator.work import Steps, WorkQueue
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.log.types import Epoch, ProducerId
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode

logger = logging.getLogger("semel.coordinator")

# How long a request waits for the last transaction to be ended before it is told to come again.
_END_WAIT_S = 0.5
_FIRST_GENERATION, _SECOND_GENERATION = 0, 2
_OPEN = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)


class TransactionCoordinator:
    def __init__(
        self,
        partition: Callable[[str, int], Partition],
        count: Callable[[str], int],
        sink: MarkerSink,
        next_producer_id: Callable[[], Awaitable[ProducerId]],
        clock: Clock,
        config: Callable[[], BrokerConfig],
        *,
        work: WorkQueue | None = None,
        newest_connection: Callable[[], int] = lambda: 0,
    ) -> None:
        """`newest_connection` is the number of the last connection that this node has accepted."""
        self._work = work or WorkQueue(clock)
        self.shards: Shards[Transactions] = Shards(
            TRANSACTIONS_TOPIC,
            partition,
            count,
            Transactions,
            clock,
            self,
            work=self._work,
            newest_connection=newest_connection,
        )
        self._terms: dict[int, TransactionTerm] = {}
        self._markers = MarkerWriter(sink, self._marked, self._coordinates)
        self._next_producer_id = next_producer_id
        self._clock = clock
        self._config = config
        self._upkeep = TransactionUpkeep(self._terms, self._abort_late, self._work, clock, config)

    def open_since_ms(self) -> Iterator[int]:
        """When each transaction began, for metrics; -1 where it is ended. Others may be served meanwhile."""
        for shard in self.shards.loaded():
            for transaction in list(shard.state.by_id.values()):
                yield transaction.started_ms if transaction.state in _OPEN else -1

    # -- the producer

    async def initialise(self, transactional_id: str, claimed: Identity, timeout_ms: int) -> Identity:
        """InitProducerId: the id stays, the epoch grows, the older instance is fenced and its transaction aborted."""
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        longest_ms = self._config().int("transaction.max.timeout.ms")
        if not 0 < timeout_ms <= longest_ms:
            raise Refused(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"the transaction timeout is {timeout_ms} ms, it can be 1 to {longest_ms} (transaction.max.timeout.ms)",
            )
        while True:
            shard = self.shards.for_key(transactional_id)
            known = shard.state.by_id.get(transactional_id)
            new_id = await self._next_producer_id() if known is None or needs_new_id(known) else None
            shard = self.shards.for_key(transactional_id)
            if shard.state.by_id.get(transactional_id) is not known:
                continue  # somebody else came first while we waited for the id
            try:
                transaction = self._initialise(shard, transactional_id, known, claimed, timeout_ms, new_id)
            except StillEnding:
                await self._wait_for_end(transactional_id)
                continue
            await shard.committed()
            return Identity(transaction.producer_id, transaction.epoch)

    def _initialise(
        self,
        shard: Shard[Transactions],
        transactional_id: str,
        known: Transaction | None,
        claimed: Identity,
        timeout_ms: int,
        new_id: ProducerId | None,
    ) -> Transaction:
        now_ms = self._clock.wall_ms()
        if known is None:
            if new_id is None:
                raise ValueError("a new transactional id needs a producer id")
            fresh = Transaction(transactional_id, new_id, 0, timeout_ms, TransactionState.EMPTY, updated_ms=now_ms)
            _append(shard, fresh)
            return fresh
        if known.state == TransactionState.ONGOING:
            check_may_raise(known, claimed)
            logger.info(
                "%.100r: aborting the open transaction of producer %d, epoch %d: %s",
                transactional_id,
                known.producer_id,
                known.epoch,
                "a newer instance takes over" if claimed == NOBODY else "its producer asks for another epoch",
            )
            self._prepare(shard, ended_by_coordinator(known, now_ms, timed_out=False, raised_by=claimed))
            raise StillEnding(transactional_id)
        transaction = initialised(known, claimed, timeout_ms, new_id, now_ms)
        if transaction is not known:
            logger.debug(
                "%.100r: producer %d, epoch %d; every epoch before it is fenced",
                transactional_id,
                transaction.producer_id,
                transaction.epoch,
            )
            _append(shard, transaction)
        return transaction

    # -- what is in the transaction

    async def add_partitions(
        self,
        transactional_id: str,
        claimed: Identity,
        partitions: Iterable[TopicPartition],
        *,
        second_generation: bool,
        connection: int | None = None,
        waits: bool = True,
    ) -> None:
        """The partitions are in the transaction, durably, before anything of it may be written to them. The caller has
        found them in this node's committed metadata: a partition that is not there any more leaves without a marker.

        When the last transaction is still being ended it `waits` a moment, or is refused."""
        added = frozenset(partitions)
        client_version = _SECOND_GENERATION if second_generation else _FIRST_GENERATION
        try:
            shard = self._add(transactional_id, claimed, added, client_version, connection)
        except StillEnding:
            if not waits:
                raise
            await self._wait_for_end(transactional_id)
            shard = self._add(transactional_id, claimed, added, client_version, connection)
        if not _is_settled(shard, transactional_id):
            await _settled(shard, transactional_id)

    def joins_at_once(self, transactional_id: str, claimed: Identity, partition: TopicPartition) -> bool:
        """The second generation: one partition joins. Whether it is in the transaction durably already."""
        shard = self._add(transactional_id, claimed, frozenset((partition,)), _SECOND_GENERATION, None)
        return _is_settled(shard, transactional_id)

    def _add(
        self,
        transactional_id: str,
        claimed: Identity,
        partitions: frozenset[TopicPartition],
        client_version: int,
        connection: int | None,
    ) -> Shard[Transactions]:
        shard = self.shards.for_key(transactional_id)
        known = shard.state.by_id.get(transactional_id)
        _check_connection(shard, known, claimed, connection)
        now_ms = self._clock.wall_ms()
        after = with_partitions(known, transactional_id, claimed, partitions, client_version, now_ms)
        if after is not None:
            _append(shard, after)
            if known is None or known.state != TransactionState.ONGOING:
                deadline_ms = self._clock.monotonic_ms() + after.timeout_ms
                self._terms[shard.partition.index].deadlines_ms[transactional_id] = deadline_ms
        return shard

    def holds(self, transactional_id: str, claimed: Identity, partition: TopicPartition) -> bool:
        """Whether a partition is in the open transaction of this very producer (KIP-890: verified before a write).
        A write has to wait until that is durable besides (`settled`)."""
        return _holds(self.shards.for_key(transactional_id), transactional_id, claimed, partition)

    def holds_durably(self, transactional_id: str, claimed: Identity, partition: TopicPartition) -> bool:
        """Whether it is in there for good: `holds` and `is_settled`."""
        shard = self.shards.for_key(transactional_id)
        return _is_settled(shard, transactional_id) and _holds(shard, transactional_id, claimed, partition)

    def is_settled(self, transactional_id: str) -> bool:
        """Whether what is known of a transactional id is durable."""
        return _is_settled(self.shards.for_key(transactional_id), transactional_id)

    async def settled(self, transactional_id: str) -> None:
        """Returns when what is known of a transactional id is durable; raises Refused when that is not to be known.
        Before that nothing of its transaction may be written: a power cut, or another leader of this coordinator's
        partition, could leave the data, and nobody who knows that it has to end."""
        await _settled(self.shards.for_key(transactional_id), transactional_id)

    def has_timed_out(self, transactional_id: str, claimed: Identity) -> bool:
        """Whether this producer's epoch ended because its transaction ran out of time."""
        known = self.shards.for_key(transactional_id).state.by_id.get(transactional_id)
        return known is not None and has_timed_out(known, claimed)

    # -- its end

    async def end(
        self,
        transactional_id: str,
        claimed: Identity,
        *,
        is_commit: bool,
        second_generation: bool,
        connection: int | None = None,
    ) -> Identity:
        """EndTxn: answered when the decision is committed and its markers are written, but for those that are refused
        and those that other nodes do not write at once (`MarkerWriter.when_written`)."""
        while True:
            shard = self.shards.for_key(transactional_id)
            known = shard.state.by_id.get(transactional_id)
            new_id = None
            if second_generation and known is not None and needs_new_id(known):
                new_id = await self._next_producer_id()
                shard = self.shards.for_key(transactional_id)
                if shard.state.by_id.get(transactional_id) is not known:
                    continue
            _check_connection(shard, known, claimed, connection)
            now_ms = self._clock.wall_ms()
            ending = ended_by_client(known, transactional_id, claimed, is_commit, second_generation, new_id, now_ms)
            if ending.prepared is not None:
                self._prepare(shard, ending.prepared)
            await shard.committed()
            written = self._markers.when_written(transactional_id)
            if written is not None:
                await written
            return ending.told

    def _prepare(self, shard: Shard[Transactions], prepared: Transaction) -> None:
        """Appends the decision, and sees to its markers once it is durable."""
        _append(shard, prepared)
        self._terms[shard.partition.index].deadlines_ms.pop(prepared.transactional_id, None)
        self._markers.start(prepared, shard.epoch, shard.when_decided)

    def _marked(self, transactional_id: str, epoch: Epoch) -> bool:
        """Notes that all markers of a transaction are written; False when this node does not coordinate it in this
        epoch any more."""
        shard = self._shard_here(transactional_id)
        if shard is None or shard.epoch != epoch:
            return False
        prepared = shard.state.by_id[transactional_id]
        _append(shard, completed(prepared, self._clock.wall_ms()))
        self._terms[shard.partition.index].ended(transactional_id)
        return True

    async def _wait_for_end(self, transactional_id: str) -> None:
        """Raises StillEnding when the last marker does not come in time."""
        shard = self.shards.for_key(transactional_id)
        if not shard.state.by_id[transactional_id].state.is_prepared:
            return
        ending = self._terms[shard.partition.index].ending(transactional_id)
        done, _ = await asyncio.wait([ending], timeout=_END_WAIT_S)
        if not done:
            raise StillEnding(transactional_id)
        await ending  # it may have ended with the leadership

    def _coordinates(self, transactional_id: str, epoch: Epoch) -> bool:
        """Whether this node still coordinates a transactional id, in this epoch. In a later one it has loaded the state
        anew by now, and carries out what that says."""
        shard = self._shard_here(transactional_id)
        return shard is not None and shard.epoch == epoch

    def _shard_here(self, transactional_id: str) -> Shard[Transactions] | None:
        try:
            return self.shards.for_key(transactional_id)
        except Refused:
            return None

    # -- shards come and go

    def prepare(self, shard: Shard[Transactions]) -> Steps:
        """What is open has its time from now on."""
        term = TransactionTerm(shard)
        for number, transaction in enumerate(list(shard.state.by_id.values()), 1):
            if transaction.state.is_prepared:
                term.prepared.append(transaction)
            elif transaction.state == TransactionState.ONGOING:
                left_ms = transaction.left_ms(self._clock.wall_ms())
                term.deadlines_ms[transaction.transactional_id] = self._clock.monotonic_ms() + left_ms
            if number % RECORDS_AT_ONCE == 0:
                yield None
        self._terms[shard.partition.index] = term

    def begin(self, shard: Shard[Transactions]) -> Steps:
        """Decisions that were made before are carried out: by a crashed node, or by another coordinator. Their markers
        carry this epoch."""
        return self._carried_on(self._terms[shard.partition.index])

    def _carried_on(self, term: TransactionTerm) -> Steps:
        shard, by_id = term.shard, term.shard.state.by_id
        for prepared in term.prepared:
            if not shard.is_current:
                break  # the next term carries it on
            if by_id.get(prepared.transactional_id) is prepared:
                self._markers.carry_on(prepared, shard.epoch, shard.when_decided)
            yield None
        term.prepared.clear()

    def let_go(self, shard: Shard[Transactions]) -> Steps:
        return self._ended(shard, self._terms.pop(shard.partition.index))

    def _ended(self, shard: Shard[Transactions], term: TransactionTerm) -> Steps:
        """Markers of this epoch stop, but not those that a newer one has begun."""
        for number, transaction in enumerate(list(shard.state.by_id.values()), 1):
            if transaction.state.is_prepared:
                self._markers.stop(transaction.transactional_id, shard.epoch)
            if number % RECORDS_AT_ONCE == 0:
                yield None
        for _ in term.over():
            yield None

    # -- upkeep

    def start_upkeep(self) -> None:
        self._upkeep.start(self.abort_overdue)

    def abort_overdue(self) -> None:
        """Every transaction ends: one that takes longer than it may is aborted."""
        self._upkeep.abort_overdue()

    def _abort_late(self, shard: Shard[Transactions], transaction: Transaction) -> None:
        self._prepare(shard, ended_by_coordinator(transaction, self._clock.wall_ms(), timed_out=True))

    def transactions(self) -> list[Transaction]:
        """All transactional ids that this node coordinates. `committed` says when they may be shown."""
        return [transaction for shard in self.shards.loaded() for transaction in shard.state.by_id.values()]

    async def committed(self) -> None:
        """Everything that was decided so far is durable."""
        await asyncio.gather(*(shard.committed() for shard in self.shards.loaded()))

    async def close(self) -> None:
        await self._upkeep.close()
        for term in self._terms.values():
            for _ in term.over():
                pass
        self._terms.clear()
        await self._markers.close()
        await self.shards.close()


def _check_connection(
    shard: Shard[Transactions], known: Transaction | None, claimed: Identity, connection: int | None
) -> None:
    """Refuses a request of the first generation that changes a transaction and was delayed on its way: it must not
    touch what has begun since. (In the second generation its epoch says so; `connection` is None.)"""
    if connection is not None and known is not None and claimed == (known.producer_id, known.epoch):
        shard.connections.check(known.transactional_id, claimed, connection)


def _holds(shard: Shard[Transactions], transactional_id: str, claimed: Identity, partition: TopicPartition) -> bool:
    known = check_owner(shard.state.by_id.get(transactional_id), transactional_id, claimed)
    return known.state == TransactionState.ONGOING and partition in known.partitions


def _is_settled(shard: Shard[Transactions], transactional_id: str) -> bool:
    return shard.state.offsets.get(transactional_id, -1) < shard.partition.log.high_watermark


async def _settled(shard: Shard[Transactions], transactional_id: str) -> None:
    offset = shard.state.offsets.get(transactional_id)
    commit = None if offset is None else shard.when_committed_at(offset)
    if commit is None:
        return
    try:
        await commit
    except Refused as refusal:
        raise as_coordinator(refusal) from refusal


def _append(shard: Shard[Transactions], decided: Transaction) -> None:
    """What the log refuses becomes an error of the coordinator, which clients retry, and leaves no trace."""
    try:
        offset = shard.write(entry(decided))
    except Refused as refusal:
        raise Refused(coordinator_error(refusal.code), f"the decision cannot be written: {refusal}") from refusal
    shard.state.take(decided, offset)
