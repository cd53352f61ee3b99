"""EndTxn in every state, of both generations, with retries, time-outs and the last epoch."""

from __future__ import annotations

import pytest
from txn_samples import EPOCH, NEW_PRODUCER, NOW_MS, OWNER, P0, PREPARED_STATES, PRODUCER, S, end, in_state, refused

from semel.coordinator.txn.decisions import Identity, StillEnding, completed, ended_by_coordinator, needs_new_id
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import LAST_EPOCH
from semel.wire.errors import ErrorCode

PREPARED = {True: S.PREPARE_COMMIT, False: S.PREPARE_ABORT}
DONE = {True: S.COMPLETE_COMMIT, False: S.COMPLETE_ABORT}
NEXT = Identity(PRODUCER, EPOCH + 1)
LAST = Identity(PRODUCER, LAST_EPOCH)
both_ends = pytest.mark.parametrize("commit", [True, False])
both_generations = pytest.mark.parametrize("v2", [False, True])


@both_ends
def test_the_first_generation_keeps_its_epoch(commit: bool) -> None:
    told, prepared = end(in_state(S.ONGOING), commit=commit)
    assert told == OWNER
    assert prepared is not None
    assert (prepared.state, prepared.epoch, prepared.partitions) == (PREPARED[commit], EPOCH, {P0})
    assert not prepared.bumps_epoch


@both_ends
def test_the_second_generation_raises_its_epoch(commit: bool) -> None:
    told, prepared = end(in_state(S.ONGOING, client_version=2), commit=commit, v2=True)
    assert told == NEXT
    assert prepared is not None
    assert (prepared.state, prepared.epoch, prepared.partitions) == (PREPARED[commit], EPOCH + 1, {P0})
    assert prepared.bumps_epoch


@both_ends
def test_how_markers_are_judged_follows_from_how_the_transaction_is_ended(commit: bool) -> None:
    """A client that joined in the new way and ends in the old one: its markers carry the epoch that it wrote with, and
    must not be taken for late ones of an earlier transaction."""
    _, prepared = end(in_state(S.ONGOING, client_version=2), commit=commit)
    assert prepared is not None
    assert not prepared.bumps_epoch


@both_generations
@both_ends
def test_while_the_end_is_under_way_a_retry_is_told_to_wait(commit: bool, v2: bool) -> None:
    _, prepared = end(in_state(S.ONGOING), commit=commit, v2=v2)
    with pytest.raises(StillEnding):
        end(prepared, commit=commit, v2=v2)


@both_generations
@both_ends
def test_a_retry_after_the_end_is_told_the_same_again(commit: bool, v2: bool) -> None:
    told, prepared = end(in_state(S.ONGOING), commit=commit, v2=v2)
    assert prepared is not None
    assert end(completed(prepared, NOW_MS), commit=commit, v2=v2) == (told, None)


@both_generations
@both_ends
def test_the_other_end_is_refused_once_one_is_decided(commit: bool, v2: bool) -> None:
    """By the same producer, with the epoch that it ended with: it is not fenced, it comes too late."""
    _, prepared = end(in_state(S.ONGOING), commit=commit, v2=v2)
    assert prepared is not None
    for transaction in (prepared, completed(prepared, NOW_MS)):
        with refused(ErrorCode.INVALID_TXN_STATE):
            end(transaction, commit=not commit, v2=v2)


@both_ends
def test_the_other_end_in_the_last_epoch_is_refused_also_when_the_id_is_a_new_one(commit: bool) -> None:
    _, prepared = end(in_state(S.ONGOING, epoch=LAST_EPOCH), LAST, commit=commit, v2=True, new_id=NEW_PRODUCER)
    assert prepared is not None
    for transaction in (prepared, completed(prepared, NOW_MS)):
        with refused(ErrorCode.INVALID_TXN_STATE):
            end(transaction, LAST, commit=not commit, v2=True)


@both_ends
def test_an_epoch_before_the_one_that_ended_is_fenced_whichever_end_it_wants(commit: bool) -> None:
    _, prepared = end(in_state(S.ONGOING), commit=commit, v2=True)
    assert prepared is not None
    for transaction in (prepared, completed(prepared, NOW_MS)):
        for wanted in (True, False):
            with refused(ErrorCode.PRODUCER_FENCED):
                end(transaction, Identity(PRODUCER, EPOCH - 1), commit=wanted, v2=True)


@both_generations
def test_a_transaction_that_never_began_cannot_be_committed(v2: bool) -> None:
    with refused(ErrorCode.INVALID_TXN_STATE):
        end(in_state(S.EMPTY), v2=v2)


def test_the_first_generation_cannot_abort_what_never_began() -> None:
    with refused(ErrorCode.INVALID_TXN_STATE):
        end(in_state(S.EMPTY), commit=False)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_the_second_generation_may_abort_a_transaction_in_which_it_wrote_nothing(state: TransactionState) -> None:
    told, prepared = end(in_state(state), commit=False, v2=True)
    assert told == NEXT
    assert prepared is not None
    assert (prepared.state, prepared.epoch, prepared.partitions) == (S.PREPARE_ABORT, EPOCH + 1, frozenset())
    assert end(completed(prepared, NOW_MS), commit=False, v2=True) == (NEXT, None), "and again, as a retry"


@pytest.mark.parametrize("state", [S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_the_second_generation_cannot_commit_again_with_its_new_epoch(state: TransactionState) -> None:
    with refused(ErrorCode.INVALID_TXN_STATE):
        end(in_state(state), v2=True)


@both_generations
@both_ends
def test_another_instance_is_fenced(commit: bool, v2: bool) -> None:
    for state in (S.ONGOING, S.EMPTY):
        with refused(ErrorCode.PRODUCER_FENCED):
            end(in_state(state), Identity(PRODUCER, EPOCH - 1), commit=commit, v2=v2)
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        end(in_state(S.ONGOING), Identity(99, EPOCH), commit=commit, v2=v2)
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        end(None, commit=commit, v2=v2)


@both_ends
def test_an_end_of_the_transaction_before_does_not_touch_the_one_that_is_open(commit: bool) -> None:
    open_again = in_state(S.ONGOING, epoch=EPOCH + 1, client_version=2)
    with refused(ErrorCode.PRODUCER_FENCED):
        end(open_again, OWNER, commit=commit, v2=True)


def test_an_abort_by_the_coordinator_raises_the_epoch() -> None:
    aborting = ended_by_coordinator(in_state(S.ONGOING), NOW_MS, timed_out=False)
    assert (aborting.state, aborting.epoch, aborting.partitions) == (S.PREPARE_ABORT, EPOCH + 1, {P0})
    with refused(ErrorCode.PRODUCER_FENCED):
        end(aborting, commit=False)


@both_generations
def test_a_commit_of_what_timed_out_is_told_so(v2: bool) -> None:
    aborting = ended_by_coordinator(in_state(S.ONGOING), NOW_MS, timed_out=True)
    for transaction in (aborting, completed(aborting, NOW_MS)):
        with refused(ErrorCode.TRANSACTION_ABORTABLE):
            end(transaction, v2=v2)


@both_generations
def test_an_abort_of_what_timed_out_succeeds_and_the_second_generation_goes_on(v2: bool) -> None:
    aborting = ended_by_coordinator(in_state(S.ONGOING), NOW_MS, timed_out=True)
    with pytest.raises(StillEnding):
        end(aborting, commit=False, v2=v2)
    aborted = completed(aborting, NOW_MS)
    assert end(aborted, commit=False, v2=v2) == (NEXT if v2 else OWNER, None)


@both_generations
@both_ends
def test_a_producer_without_an_epoch_is_not_one_that_timed_out(commit: bool, v2: bool) -> None:
    with refused(ErrorCode.PRODUCER_FENCED):
        end(in_state(S.COMPLETE_ABORT, epoch=9), Identity(PRODUCER, -1), commit=commit, v2=v2)


def test_the_last_epoch_of_the_second_generation_ends_with_a_new_id() -> None:
    ongoing = in_state(S.ONGOING, epoch=LAST_EPOCH, client_version=2)
    assert needs_new_id(ongoing)
    told, prepared = end(ongoing, LAST, v2=True, new_id=NEW_PRODUCER)
    assert told == (NEW_PRODUCER, 0)
    assert prepared is not None
    assert (prepared.producer_id, prepared.epoch) == (PRODUCER, 32767), "the markers are of the old id"
    with pytest.raises(StillEnding):
        end(prepared, LAST, v2=True)
    done = completed(prepared, NOW_MS)
    assert (done.producer_id, done.epoch, done.state) == (NEW_PRODUCER, 0, S.COMPLETE_COMMIT)
    assert end(done, LAST, v2=True) == ((NEW_PRODUCER, 0), None), "its answer was lost"


def test_the_epoch_before_the_last_is_followed_by_the_last() -> None:
    told, prepared = end(in_state(S.ONGOING, epoch=LAST_EPOCH - 1), Identity(PRODUCER, LAST_EPOCH - 1), v2=True)
    assert told == LAST
    assert prepared is not None
    assert prepared.next_producer_id == -1


def test_an_end_with_a_new_id_is_told_to_wait_while_the_old_one_is_being_ended() -> None:
    _, prepared = end(in_state(S.ONGOING, epoch=LAST_EPOCH), LAST, v2=True, new_id=NEW_PRODUCER)
    with pytest.raises(StillEnding):
        end(prepared, Identity(NEW_PRODUCER, 0), commit=False, v2=True)


def test_a_time_out_in_the_last_epoch_goes_on_with_a_new_id() -> None:
    ongoing = in_state(S.ONGOING, epoch=LAST_EPOCH, client_version=2)
    aborted = completed(ended_by_coordinator(ongoing, NOW_MS, timed_out=True), NOW_MS)
    assert aborted.epoch == 32767
    assert needs_new_id(aborted)
    told, prepared = end(aborted, LAST, commit=False, v2=True, new_id=NEW_PRODUCER)
    assert told == (NEW_PRODUCER, 0)
    assert prepared is not None
    with pytest.raises(StillEnding):
        end(prepared, LAST, commit=False, v2=True)
    done = completed(prepared, NOW_MS)
    assert (done.producer_id, done.epoch, done.previous_producer_id) == (NEW_PRODUCER, 0, PRODUCER)
    assert end(done, LAST, commit=False, v2=True) == ((NEW_PRODUCER, 0), None)


@pytest.mark.parametrize("state", PREPARED_STATES)
def test_when_all_markers_are_written_the_end_is_what_was_decided(state: TransactionState) -> None:
    done = completed(in_state(state), NOW_MS)
    assert done.state == DONE[state == S.PREPARE_COMMIT]
    assert done.partitions == frozenset()


@both_ends
def test_only_the_last_epoch_of_the_previous_id_is_a_retry_and_only_while_the_new_one_is_fresh(commit: bool) -> None:
    fresh = in_state(DONE[commit], producer_id=NEW_PRODUCER, epoch=0, previous_producer_id=PRODUCER)
    assert end(fresh, LAST, commit=commit, v2=True) == ((NEW_PRODUCER, 0), None)
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        end(fresh, Identity(99, 3), commit=commit, v2=True)
    with refused(ErrorCode.PRODUCER_FENCED):
        end(fresh, Identity(PRODUCER, LAST_EPOCH - 1), commit=commit, v2=True)
    with refused(ErrorCode.PRODUCER_FENCED):
        end(fresh._replace(epoch=1), LAST, commit=commit, v2=True)


@both_ends
def test_while_an_id_is_exchanged_only_its_producer_is_told_to_wait(commit: bool) -> None:
    _, prepared = end(in_state(S.ONGOING, epoch=LAST_EPOCH), LAST, commit=commit, v2=True, new_id=NEW_PRODUCER)
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        end(prepared, Identity(99, 0), commit=commit, v2=True)
    with refused(ErrorCode.PRODUCER_FENCED):
        end(prepared, Identity(PRODUCER, EPOCH), commit=commit, v2=True)
    with refused(ErrorCode.PRODUCER_FENCED):
        end(in_state(S.ONGOING), Identity(-1, 0), commit=commit, v2=True)
