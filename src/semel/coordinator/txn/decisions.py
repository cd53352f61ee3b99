"""What may happen to a transaction, and what becomes of it. Pure: the coordinator appends what is decided here.

Every function takes the transaction as it is and returns it as it will be, raises Refused for what the peer may not
do, or raises `StillEnding` when an earlier end has to be completed first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from semel.coordinator.txn.state import Event, TransactionState, moved
from semel.coordinator.txn.transactions import LAST_EPOCH, NO_EPOCH, NO_PRODUCER_ID, TopicPartition, Transaction
from semel.log.errors import Refused
from semel.log.types import Epoch, ProducerId
from semel.wire.errors import ErrorCode


class StillEnding(Refused):
    """The markers of the last transaction are not all written yet: try again in a moment."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction of {transactional_id!r} is still being ended"
        )


class TimedOut(Refused):
    """The transaction ran out of time and was aborted. Versions that cannot say so are told INVALID_PRODUCER_EPOCH."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(
            ErrorCode.TRANSACTION_ABORTABLE,
            f"the transaction of {transaction.transactional_id!r} took longer than {transaction.timeout_ms} ms "
            "and was aborted",
        )


class Identity(NamedTuple):
    """A producer id and epoch, as a producer states them or is told to use them."""

    producer_id: ProducerId
    epoch: Epoch


NOBODY = Identity(NO_PRODUCER_ID, NO_EPOCH)
_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


def check_owner(transaction: Transaction | None, transactional_id: str, claimed: Identity) -> Transaction:
    """The transaction, if `claimed` is its producer now."""
    if transaction is not None and _is_to_come(transaction, claimed):
        raise StillEnding(transactional_id)
    if transaction is None or claimed.producer_id not in (transaction.producer_id, transaction.previous_producer_id):
        raise Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"producer {claimed.producer_id} does not belong to the transactional id {transactional_id!r}: "
            "it has expired or was never given out; initialise the producer again",
        )
    if claimed != (transaction.producer_id, transaction.epoch):
        if has_timed_out(transaction, claimed):
            raise TimedOut(transaction)
        raise Refused(
            ErrorCode.PRODUCER_FENCED,
            f"epoch {claimed.epoch} of {transactional_id!r} is over, a newer instance has {transaction.epoch}",
        )
    return transaction


def has_timed_out(transaction: Transaction, claimed: Identity) -> bool:
    """Whether this was the producer until its transaction ran out of time."""
    return claimed.epoch != NO_EPOCH and claimed == (transaction.producer_id, transaction.timed_out_epoch)


def _is_to_come(transaction: Transaction, claimed: Identity) -> bool:
    """Whether this is who the producer will be when the transaction has ended: it was told so with the decision."""
    return transaction.next_producer_id != NO_PRODUCER_ID and claimed == (transaction.next_producer_id, 0)


def initialised(
    transaction: Transaction, claimed: Identity, timeout_ms: int, new_id: ProducerId | None, now_ms: int
) -> Transaction:
    """A producer has started, or lost its sequence and asks for the next epoch (KIP-360). The last transaction must
    have ended. `new_id` is needed when the epochs of the old id are used up (`needs_new_id`)."""
    if transaction.state == TransactionState.EMPTY and claimed != NOBODY and claimed == _raised_from(transaction):
        # Its first try was carried out, but the answer was lost.
        return transaction
    check_may_raise(transaction, claimed)
    if transaction.state.is_prepared:
        raise StillEnding(transaction.transactional_id)
    fresh = transaction._replace(
        epoch=transaction.epoch + 1,
        timeout_ms=timeout_ms,
        state=moved(transaction.state, Event.INIT),
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
        client_version=0,
        timed_out_epoch=NO_EPOCH,
        raised_from_epoch=claimed.epoch,
    )
    if new_id is None:
        return fresh
    return fresh._replace(producer_id=new_id, epoch=0, previous_producer_id=transaction.producer_id)


def check_may_raise(transaction: Transaction, claimed: Identity) -> None:
    """Whoever claims nothing takes over. Who claims to be the producer must be it, or have been it until its time ran
    out or until its own, unfinished raise."""
    if claimed == NOBODY or _is_to_come(transaction, claimed):
        return
    current = Identity(transaction.producer_id, transaction.epoch)
    if claimed not in (current, _raised_from(transaction)) and not has_timed_out(transaction, claimed):
        raise Refused(
            ErrorCode.PRODUCER_FENCED,
            f"{transaction.transactional_id!r} has producer {current.producer_id} with epoch {current.epoch}, "
            f"not {claimed.producer_id} with {claimed.epoch}",
        )


def _raised_from(transaction: Transaction) -> Identity:
    """Who asked for the last raise. Epoch 0 is the first of a new id: it was asked for with the previous one."""
    asked_with = transaction.producer_id if transaction.epoch else transaction.previous_producer_id
    return Identity(asked_with, transaction.raised_from_epoch)


def needs_new_id(transaction: Transaction) -> bool:
    """Whether the next epoch would be the one that is kept for a marker."""
    return transaction.epoch >= LAST_EPOCH


def with_partitions(
    transaction: Transaction | None,
    transactional_id: str,
    claimed: Identity,
    partitions: Iterable[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction | None:
    """The transaction with more partitions in it; None when they are in it already."""
    transaction = check_owner(transaction, transactional_id, claimed)
    if transaction.state.is_prepared:
        raise StillEnding(transactional_id)
    added = frozenset(partitions)
    is_open = transaction.state == TransactionState.ONGOING
    if is_open and added <= transaction.partitions:
        return None
    # It goes on with what it was told: nobody asks with an older epoch any more, except late.
    return transaction.stepped(
        moved(transaction.state, Event.ADD),
        transaction.epoch,
        transaction.partitions | added if is_open else added,
        transaction.started_ms if is_open else now_ms,
        now_ms,
        client_version,
    )


class Ending(NamedTuple):
    """How an EndTxn is answered: who the producer is from now on, and the prepared transaction if there is one."""

    told: Identity
    prepared: Transaction | None


def ended_by_client(
    transaction: Transaction | None,
    transactional_id: str,
    claimed: Identity,
    is_commit: bool,
    bumps_epoch: bool,
    new_id: ProducerId | None,
    now_ms: int,
) -> Ending:
    """EndTxn. `bumps_epoch`: the second generation, where the end itself raises the epoch, so that nothing that is
    still under way from this transaction can touch the next one."""
    retried = _retried_end(transaction, claimed, is_commit, bumps_epoch, new_id)
    if retried is not None:
        return retried
    transaction = check_owner(transaction, transactional_id, claimed)
    state = transaction.state
    done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    under_way = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    if not bumps_epoch and state == done:
        return Ending(claimed, None)
    if state == under_way or (bumps_epoch and state.is_prepared):
        # In the second generation the producer has its next epoch already: it is about its next transaction.
        raise StillEnding(transactional_id)
    if state != TransactionState.ONGOING and (is_commit or not bumps_epoch):
        raise _decided_otherwise(transaction, is_commit)
    event = Event.COMMIT if is_commit else Event.ABORT
    # How the markers are judged follows from how the transaction is ended, not from how it was joined.
    prepared = transaction.stepped(
        moved(state, event),
        transaction.epoch + 1 if bumps_epoch else transaction.epoch,
        transaction.partitions,
        transaction.started_ms,
        now_ms,
        client_version=2 if bumps_epoch else 0,
    )
    if not bumps_epoch:
        return Ending(claimed, prepared)
    if state != TransactionState.ONGOING:
        prepared = prepared._replace(partitions=frozenset(), started_ms=now_ms)
    if needs_new_id(transaction):
        if new_id is None:
            raise ValueError("the epochs are used up, and no new producer id was brought along")
        return Ending(Identity(new_id, 0), prepared._replace(next_producer_id=new_id))
    return Ending(Identity(transaction.producer_id, prepared.epoch), prepared)


def _retried_end(
    transaction: Transaction | None,
    claimed: Identity,
    is_commit: bool,
    bumps_epoch: bool,
    new_id: ProducerId | None,
) -> Ending | None:
    """An EndTxn that was carried out before, but whose answer was lost; or an abort of what time has aborted. One that
    asks with the same epoch for the other end is told that it comes too late, as in Kafka: it is not fenced."""
    if transaction is None:
        return None
    now = Identity(transaction.producer_id, transaction.epoch)
    timed_out = has_timed_out(transaction, claimed)
    if timed_out and not is_commit:
        if transaction.state.is_prepared:
            raise StillEnding(transaction.transactional_id)
        if bumps_epoch and now.epoch > LAST_EPOCH:
            return _with_new_id(transaction, new_id)
        return Ending(now if bumps_epoch else claimed, None)
    if not bumps_epoch or timed_out:
        return None
    before_bump = claimed == (transaction.producer_id, transaction.epoch - 1)
    before_new_id = claimed == (transaction.previous_producer_id, LAST_EPOCH) and transaction.epoch == 0
    if transaction.state.is_prepared and before_bump:
        if transaction.state.commits != is_commit:
            raise _decided_otherwise(transaction, is_commit)
        raise StillEnding(transaction.transactional_id)
    if transaction.state.is_complete and (before_bump or before_new_id):
        if transaction.state.commits != is_commit:
            raise _decided_otherwise(transaction, is_commit)
        return Ending(now, None)
    return None


def _decided_otherwise(transaction: Transaction, is_commit: bool) -> Refused:
    verb = "committed" if is_commit else "aborted"
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of {transaction.transactional_id!r} is {transaction.state.label}: it cannot be {verb}",
    )


def _with_new_id(aborted: Transaction, new_id: ProducerId | None) -> Ending:
    """Time ran out in the last epoch, and its abort took the one that is kept for markers: the producer goes on with a
    new id, by an end without partitions."""
    if new_id is None:
        raise ValueError("the epochs are used up, and no new producer id was brought along")
    prepared = aborted._replace(state=moved(aborted.state, Event.ABORT), client_version=2, next_producer_id=new_id)
    return Ending(Identity(new_id, 0), prepared)


def ended_by_coordinator(
    transaction: Transaction, now_ms: int, *, timed_out: bool, raised_by: Identity = NOBODY
) -> Transaction:
    """Aborts what its producer cannot end any more: time has run out, a newer instance takes over, or the producer
    itself asks for another epoch (`raised_by`). The epoch is raised first, so that nothing of the old instance is
    accepted after the marker."""
    fenced = transaction._replace(
        state=moved(transaction.state, Event.FENCE),
        epoch=transaction.epoch + 1,
        timed_out_epoch=transaction.epoch if timed_out else NO_EPOCH,
        raised_from_epoch=raised_by.epoch,
        updated_ms=now_ms,
    )
    return fenced._replace(state=moved(fenced.state, Event.ABORT))


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """Every marker is written."""
    done = transaction.stepped(
        moved(transaction.state, Event.MARKED),
        transaction.epoch,
        _NO_PARTITIONS,
        transaction.started_ms,
        now_ms,
        transaction.client_version,
        transaction.timed_out_epoch,
        transaction.raised_from_epoch,
    )
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return done._replace(
            producer_id=transaction.next_producer_id,
            epoch=0,
            previous_producer_id=transaction.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            timed_out_epoch=NO_EPOCH,
        )
    return done


def is_expired(transaction: Transaction, now_ms: int, expiration_ms: int) -> bool:
    can_expire = transaction.state in (
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
    return can_expire and now_ms - transaction.updated_ms >= expiration_ms
