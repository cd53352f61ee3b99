"""What a produce inside a transaction needs besides a produce: its partition must be part of that transaction.

First generation (Produce up to 11): AddPartitionsToTxn came before, and here it is only verified (KIP-890 part 1), so
that nothing can be written that no marker will ever end. Second generation (from 12 on): the partition joins the
transaction here, durably, before the batch is written. `transaction_membership` knows how, and whom to ask.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.broker.transaction_membership import COME_AGAIN, Joined, TransactionMembership, is_open
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.decisions import Identity, TimedOut
from semel.log.errors import Refused
from semel.records.batch import BatchHeader
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode

_SECOND_GENERATION_SINCE = 12
_ABORTABLE_SINCE = 11


class TransactionVerifier:
    """Says whether a batch may be written in its transaction."""

    def __init__(self, transactions: TransactionCoordinator, membership: TransactionMembership) -> None:
        self._transactions = transactions
        self.membership = membership

    def has_to_wait(self, transactional_id: str, version: int) -> bool:
        """Whether the partitions may have to join first, or a coordinator to be asked, or what is known of the
        transaction is not durable yet."""
        if version >= _SECOND_GENERATION_SINCE or self.membership.is_elsewhere(transactional_id):
            return True
        try:
            return not self._transactions.is_settled(transactional_id)
        except Refused:
            return False  # `verify` says what is wrong

    def may_write_at_once(self, transactional_id: str, claimed: Identity, partition: Partition, version: int) -> bool:
        """Whether `verify` would find nothing wrong with a batch of this producer, and nothing has to be waited for.

        In the second generation its partition joins by this; if that is not durable yet, the long path waits for it."""
        if self.membership.is_elsewhere(transactional_id):
            return is_open(partition, claimed)
        transactions, place = self._transactions, (partition.topic, partition.index)
        try:
            if version >= _SECOND_GENERATION_SINCE:
                return transactions.joins_at_once(transactional_id, claimed, place)
            return transactions.holds_durably(transactional_id, claimed, place)
        except Refused:
            return False

    async def join(
        self, transactional_id: str, claimed: Identity, partitions: Sequence[Partition], version: int, joined: Joined
    ) -> None:
        """When it returns, these partitions are in the transaction, durably: in the first generation those that are in
        it at all. `verify` looks at what `joined` was told."""
        second_generation = version >= _SECOND_GENERATION_SINCE
        try:
            await self.membership.join(
                transactional_id, claimed, partitions, joined, second_generation=second_generation
            )
        except Refused as refusal:
            raise translated(refusal, version) from refusal

    def verify(
        self,
        transactional_id: str | None,
        header: BatchHeader,
        partition: Partition,
        version: int,
        joined: Joined | None = None,
    ) -> None:
        """Raises Refused when the batch is not part of an open transaction of its producer."""
        if transactional_id is None:
            raise Refused(
                ErrorCode.INVALID_TXN_STATE, "the batch is transactional, but the request names no transactional id"
            )
        if not self.membership.verifies:
            return
        claimed = Identity(header.producer_id, header.producer_epoch)
        try:
            self.membership.check(transactional_id, claimed, partition, joined)
        except Refused as refusal:
            raise translated(refusal, version) from refusal

    def explained(self, transactional_id: str, header: BatchHeader, version: int, refusal: Refused) -> Refused:
        """An epoch that is old because its transaction ran out of time is not called fenced, where that can be said:
        where this node coordinates the transaction."""
        if refusal.code != ErrorCode.INVALID_PRODUCER_EPOCH or version < _ABORTABLE_SINCE:
            return refusal
        claimed = Identity(header.producer_id, header.producer_epoch)
        try:
            has_timed_out = self._transactions.has_timed_out(transactional_id, claimed)
        except Refused:
            return refusal
        if not has_timed_out:
            return refusal
        return Refused(
            ErrorCode.TRANSACTION_ABORTABLE, f"the transaction of {transactional_id!r} took too long and was aborted"
        )


def translated(refusal: Refused, version: int) -> Refused:
    """Fencing is INVALID_PRODUCER_EPOCH in Produce. That a transaction can only be aborted, old versions cannot say.
    And that a coordinator is not there yet is nothing that a producer expects here: it is told to come again."""
    if refusal.code == ErrorCode.PRODUCER_FENCED:
        return Refused(ErrorCode.INVALID_PRODUCER_EPOCH, refusal.text)
    if refusal.code in COME_AGAIN:
        return Refused(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be looked at: {refusal.text}")
    if refusal.code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        is_late = isinstance(refusal, TimedOut)
        return Refused(ErrorCode.INVALID_PRODUCER_EPOCH if is_late else ErrorCode.INVALID_TXN_STATE, refusal.text)
    return refusal
