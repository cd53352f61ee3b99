"""What a produce inside a transaction needs besides a produce: its partition must be part of that transaction.

First generation (Produce up to 11): AddPartitionsToTxn came before, and here it is only verified, before the first
write of a transaction to a partition (KIP-890 part 1), so that nothing can be written that no marker will ever end.
Second generation (from 12 on): the partition joins the transaction here, durably, before the batch is written.
"""

from __future__ import annotations

from semel.broker.broker import Broker
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.log.producers import NO_OFFSET
from semel.records.batch import BatchHeader
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode

_SECOND_GENERATION_SINCE = 12
_ABORTABLE_SINCE = 11


def joins_by_itself(version: int) -> bool:
    return version >= _SECOND_GENERATION_SINCE


def has_joined(broker: Broker, transactional_id: str, header: BatchHeader, partition: Partition) -> bool:
    """Whether the partition is in this producer's open transaction already; raises Refused for somebody else's."""
    claimed = Identity(header.producer_id, header.producer_epoch)
    return broker.transactions.holds(transactional_id, claimed, (partition.topic, partition.index))


def verify(
    broker: Broker, transactional_id: str | None, header: BatchHeader, partition: Partition, version: int
) -> None:
    """Raises Refused when the batch is not part of an open transaction of its producer."""
    if transactional_id is None:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE, "the batch is transactional, but the request names no transactional id"
        )
    known = partition.log.producers.entry(header.producer_id)
    if known is not None and known.epoch == header.producer_epoch and known.transaction_first_offset != NO_OFFSET:
        return  # verified by its first write
    try:
        if not broker.config.bool("transaction.partition.verification.enable"):
            return
        if has_joined(broker, transactional_id, header, partition):
            return
    except Refused as refusal:
        raise translated(refusal, version) from refusal
    raise translated(
        Refused(
            ErrorCode.TRANSACTION_ABORTABLE,
            f"{partition.topic}-{partition.index} is not part of an open transaction of {transactional_id!r}",
        ),
        version,
    )


def translated(refusal: Refused, version: int) -> Refused:
    """Fencing is INVALID_PRODUCER_EPOCH in Produce; that a transaction can only be aborted, old versions cannot say."""
    if refusal.code == ErrorCode.PRODUCER_FENCED:
        return Refused(ErrorCode.INVALID_PRODUCER_EPOCH, refusal.text)
    if refusal.code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return Refused(ErrorCode.INVALID_TXN_STATE, refusal.text)
    return refusal


def explained(broker: Broker, transactional_id: str, header: BatchHeader, version: int, refusal: Refused) -> Refused:
    """An old epoch that is old because its transaction ran out of time is not called fenced, where that can be said."""
    if refusal.code != ErrorCode.INVALID_PRODUCER_EPOCH or version < _ABORTABLE_SINCE:
        return refusal
    claimed = Identity(header.producer_id, header.producer_epoch)
    if not broker.transactions.has_timed_out(transactional_id, claimed):
        return refusal
    return Refused(
        ErrorCode.TRANSACTION_ABORTABLE, f"the transaction of {transactional_id!r} took too long and was aborted"
    )
