"""Partitions join a transaction: which state that needs, and whose transaction it has to be."""

from __future__ import annotations

import pytest
from txn_samples import (
    ENDED_STATES,
    EPOCH,
    NEW_PRODUCER,
    NOW_MS,
    OWNER,
    P0,
    P1,
    PREPARED_STATES,
    PRODUCER,
    S,
    add,
    in_state,
    refused,
)

from semel.coordinator.txn.decisions import Identity, StillEnding, completed, ended_by_coordinator
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import LAST_EPOCH
from semel.wire.errors import ErrorCode


@pytest.mark.parametrize("state", ENDED_STATES)
def test_the_first_partition_opens_a_transaction(state: TransactionState) -> None:
    after = add(in_state(state), OWNER, P1)
    assert after is not None
    assert (after.state, after.partitions, after.started_ms, after.updated_ms) == (S.ONGOING, {P1}, NOW_MS, NOW_MS)


def test_further_partitions_join_and_the_clock_of_the_transaction_goes_on() -> None:
    before = in_state(S.ONGOING)
    after = add(before, OWNER, P1)
    assert after is not None
    assert after.partitions == {P0, P1}
    assert after.started_ms == before.started_ms


def test_a_partition_that_is_in_it_already_changes_nothing() -> None:
    assert add(in_state(S.ONGOING), OWNER, P0) is None


@pytest.mark.parametrize("state", PREPARED_STATES)
def test_nothing_joins_a_transaction_whose_end_is_decided(state: TransactionState) -> None:
    with pytest.raises(StillEnding):
        add(in_state(state), OWNER, P0)


def test_an_unknown_producer_has_no_transaction() -> None:
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        add(None, OWNER)
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        add(in_state(S.EMPTY), Identity(NEW_PRODUCER, EPOCH))


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_another_epoch_is_fenced(epoch: int) -> None:
    for state in TransactionState:
        with refused(ErrorCode.PRODUCER_FENCED):
            add(in_state(state), Identity(PRODUCER, epoch))


def test_an_instance_of_the_id_before_the_overflow_is_fenced() -> None:
    with refused(ErrorCode.PRODUCER_FENCED):
        add(in_state(S.EMPTY, previous_producer_id=3), Identity(3, LAST_EPOCH))


def test_a_producer_whose_transaction_timed_out_is_told_so_until_it_begins_again() -> None:
    aborting = ended_by_coordinator(in_state(S.ONGOING), NOW_MS, timed_out=True)
    aborted = completed(aborting, NOW_MS)
    for transaction in (aborting, aborted):
        with refused(ErrorCode.TRANSACTION_ABORTABLE) as info:
            add(transaction)
        assert "longer than 60000 ms" in str(info.value)
    begun = add(aborted, Identity(PRODUCER, EPOCH + 1))
    assert begun is not None
    with refused(ErrorCode.PRODUCER_FENCED):
        add(begun)


def test_a_producer_that_was_told_a_new_id_is_told_to_wait_while_the_old_one_is_being_ended() -> None:
    ending = in_state(S.PREPARE_COMMIT, epoch=LAST_EPOCH + 1, next_producer_id=NEW_PRODUCER, client_version=2)
    with pytest.raises(StillEnding):
        add(ending, Identity(NEW_PRODUCER, 0))
    begun = add(completed(ending, NOW_MS), Identity(NEW_PRODUCER, 0))
    assert begun is not None
    assert (begun.producer_id, begun.epoch) == (NEW_PRODUCER, 0)


@pytest.mark.parametrize("version", [0, 2])
def test_the_transaction_remembers_which_generation_joined_it(version: int) -> None:
    after = add(in_state(S.EMPTY), client_version=version)
    assert after is not None
    assert after.bumps_epoch == (version == 2)
