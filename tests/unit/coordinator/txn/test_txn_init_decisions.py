"""InitProducerId with a transactional id: who owns it afterwards, and who does not any more."""

from __future__ import annotations

import pytest
from txn_samples import (
    ENDED_STATES,
    EPOCH,
    NEW_PRODUCER,
    NOW_MS,
    OWNER,
    PREPARED_STATES,
    PRODUCER,
    S,
    in_state,
    init,
    refused,
)

from semel.coordinator.txn.decisions import (
    Identity,
    StillEnding,
    completed,
    ended_by_coordinator,
    is_expired,
    needs_new_id,
)
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import LAST_EPOCH
from semel.wire.errors import ErrorCode


@pytest.mark.parametrize("state", ENDED_STATES)
def test_a_new_instance_keeps_the_id_and_gets_the_next_epoch(state: TransactionState) -> None:
    after = init(in_state(state, client_version=2), timeout_ms=1234)
    assert (after.producer_id, after.epoch, after.state) == (PRODUCER, EPOCH + 1, S.EMPTY)
    assert (after.timeout_ms, after.partitions, after.started_ms, after.updated_ms) == (1234, frozenset(), -1, NOW_MS)
    assert after.client_version == 0, "which generation it speaks is told by what it sends"


@pytest.mark.parametrize("state", PREPARED_STATES)
def test_a_new_instance_waits_until_the_last_transaction_has_ended(state: TransactionState) -> None:
    with pytest.raises(StillEnding):
        init(in_state(state))
    with pytest.raises(StillEnding):
        init(in_state(state), OWNER)


@pytest.mark.parametrize("state", ENDED_STATES)
def test_a_producer_that_lost_its_sequence_gets_the_next_epoch(state: TransactionState) -> None:
    after = init(in_state(state), OWNER)
    assert (after.producer_id, after.epoch, after.state) == (PRODUCER, EPOCH + 1, S.EMPTY)


def test_if_the_answer_was_lost_the_same_epoch_is_told_again() -> None:
    raised = init(in_state(S.COMPLETE_COMMIT), OWNER)
    assert init(raised, OWNER) is raised


def test_if_the_answer_with_a_new_id_was_lost_the_same_id_is_told_again() -> None:
    last = Identity(PRODUCER, LAST_EPOCH)
    raised = init(in_state(S.EMPTY, epoch=LAST_EPOCH), last, NEW_PRODUCER)
    assert (raised.producer_id, raised.epoch, raised.previous_producer_id) == (NEW_PRODUCER, 0, PRODUCER)
    assert init(raised, last) is raised


def test_an_instance_that_was_replaced_cannot_come_back_by_a_raise() -> None:
    taken_over = init(in_state(S.EMPTY))
    with refused(ErrorCode.PRODUCER_FENCED):
        init(taken_over, OWNER)
    with refused(ErrorCode.PRODUCER_FENCED):
        init(taken_over, Identity(PRODUCER + 100, EPOCH + 1))


def test_an_instance_of_the_previous_id_cannot_come_back_with_an_epoch_that_was_raised_under_the_new_one() -> None:
    """The id has overflowed once, long ago; epoch 5 of the new id was raised to 6. Epoch 5 of the old id is nobody."""
    current = in_state(S.EMPTY, producer_id=NEW_PRODUCER, previous_producer_id=PRODUCER)
    raised = init(current, Identity(NEW_PRODUCER, EPOCH))
    assert init(raised, Identity(NEW_PRODUCER, EPOCH)) is raised
    with refused(ErrorCode.PRODUCER_FENCED):
        init(raised, Identity(PRODUCER, EPOCH))


def test_a_raise_that_aborts_the_open_transaction_ends_with_its_own_producer() -> None:
    """The first try aborts, and is sent away until that is done; the second one still comes with the old epoch."""
    aborting = ended_by_coordinator(in_state(S.ONGOING), NOW_MS, timed_out=False, raised_by=OWNER)
    with pytest.raises(StillEnding):
        init(aborting, OWNER)
    aborted = completed(aborting, NOW_MS)
    raised = init(aborted, OWNER)
    assert (raised.producer_id, raised.state) == (PRODUCER, S.EMPTY)
    assert raised.epoch > aborted.epoch
    assert init(raised, OWNER) is raised


def test_a_raise_after_a_takeover_that_aborted_is_fenced() -> None:
    aborted = completed(ended_by_coordinator(in_state(S.ONGOING), NOW_MS, timed_out=False), NOW_MS)
    with refused(ErrorCode.PRODUCER_FENCED):
        init(aborted, OWNER)


def test_a_producer_whose_transaction_timed_out_may_go_on_with_a_raised_epoch() -> None:
    timed_out = completed(ended_by_coordinator(in_state(S.ONGOING), NOW_MS, timed_out=True), NOW_MS)
    after = init(timed_out, OWNER)
    assert (after.producer_id, after.epoch, after.state) == (PRODUCER, EPOCH + 2, S.EMPTY)
    assert init(after, OWNER) is after, "its answer may be lost, too"


def test_the_last_epoch_is_followed_by_a_new_id() -> None:
    assert not needs_new_id(in_state(S.EMPTY, epoch=LAST_EPOCH - 1))
    assert init(in_state(S.EMPTY, epoch=LAST_EPOCH - 1)).epoch == LAST_EPOCH == 32766
    exhausted = in_state(S.EMPTY, epoch=LAST_EPOCH)
    assert needs_new_id(exhausted)
    after = init(exhausted, new_id=NEW_PRODUCER)
    assert (after.producer_id, after.epoch, after.previous_producer_id) == (NEW_PRODUCER, 0, PRODUCER)


def test_an_abort_of_the_last_epochs_transaction_uses_the_one_that_is_kept_for_it() -> None:
    aborting = ended_by_coordinator(in_state(S.ONGOING, epoch=LAST_EPOCH), NOW_MS, timed_out=False)
    assert aborting.epoch == 32767
    aborted = completed(aborting, NOW_MS)
    assert needs_new_id(aborted)
    assert init(aborted, new_id=NEW_PRODUCER).producer_id == NEW_PRODUCER


def test_a_producer_that_was_told_a_new_id_is_told_to_wait_while_the_old_one_is_being_ended() -> None:
    ending = in_state(S.PREPARE_COMMIT, epoch=LAST_EPOCH + 1, next_producer_id=NEW_PRODUCER, client_version=2)
    with pytest.raises(StillEnding):
        init(ending, Identity(NEW_PRODUCER, 0))


@pytest.mark.parametrize("state", TransactionState)
def test_only_what_is_not_in_a_transaction_expires(state: TransactionState) -> None:
    transaction = in_state(state, updated_ms=NOW_MS - 500)
    assert is_expired(transaction, NOW_MS, 500) == (state in ENDED_STATES)
    assert not is_expired(transaction, NOW_MS, 501)
