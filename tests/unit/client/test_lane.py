"""One partition's way out: names, order, and gaps."""

from __future__ import annotations

import pytest
from lane_steps import FIRST, SECOND, lane_with, lost, refused_for_good, taken

from semel.client.producer.batch import NOBODY, Identity
from semel.records.sequences import NO_SEQUENCE

# -- sequences


def test_a_sequence_is_given_when_a_batch_is_taken_and_not_before() -> None:
    lane, (first, second) = lane_with(3, 2)
    assert (first.base_sequence, second.base_sequence) == (NO_SEQUENCE, NO_SEQUENCE)
    assert lane.take(named=True) is first
    assert (first.identity, first.base_sequence) == (FIRST, 0)
    assert (second.identity, second.base_sequence) == (NOBODY, NO_SEQUENCE)
    assert lane.take(named=True) is second
    assert second.base_sequence == 3
    assert lane.next_sequence == 5


def test_a_batch_that_is_taken_again_keeps_its_name() -> None:
    lane, (first, second) = lane_with(3, 2)
    taken(lane, 2)
    lost(lane, first, second)
    lane.identity = SECOND  # whatever happens to the lane meanwhile
    assert taken(lane, 2) == [first, second]
    assert [(batch.identity, batch.base_sequence, batch.attempts) for batch in (first, second)] == [
        (FIRST, 0, 2),
        (FIRST, 3, 2),
    ]
    assert lane.next_sequence == 5


def test_without_idempotence_nothing_is_named() -> None:
    lane, (first,) = lane_with(3)
    lane.take(named=False)
    assert (first.identity, first.base_sequence, first.attempts) == (NOBODY, NO_SEQUENCE, 1)
    assert lane.next_sequence == 0


def test_sequences_wrap_to_zero_after_the_largest() -> None:
    lane, (first, second, third) = lane_with(2, 3, 1)
    lane.next_sequence = 2**31 - 2
    taken(lane, 3)
    assert [batch.base_sequence for batch in (first, second, third)] == [2**31 - 2, 0, 3]


def test_a_batch_may_itself_run_over_the_largest_sequence() -> None:
    lane, (first, second) = lane_with(5, 1)
    lane.next_sequence = 2**31 - 2
    taken(lane, 2)
    assert [batch.base_sequence for batch in (first, second)] == [2**31 - 2, 3]
    assert lane.is_oldest(first)
    assert not lane.is_oldest(second)


@pytest.mark.parametrize("start", [0, 2**31 - 3, 2**31 - 1])
@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 1), (1, 2, 0), (0, 1, 2)])
def test_batches_that_come_back_wait_in_order_of_sequence(start: int, order: tuple[int, ...]) -> None:
    lane, batches = lane_with(1, 1, 1, 1)
    lane.next_sequence = start
    taken(lane, 3)
    for index in order:
        lane.put_back(batches[index])
    assert list(lane.waiting) == batches
    assert not lane.in_flight


def test_without_sequences_a_batch_comes_back_to_the_front() -> None:
    lane, (first, second, third) = lane_with(1, 1, 1)
    lane.take(named=False)
    lane.take(named=False)
    lane.put_back(second)
    lane.put_back(first)
    assert list(lane.waiting) == [first, second, third]


# -- what may be sent


def test_new_batches_go_beside_each_other_while_nothing_is_wrong() -> None:
    lane, _ = lane_with(1, 1, 1)
    assert lane.may_send()
    lane.take(named=True)
    assert lane.may_send()


def test_until_the_leader_has_taken_a_batch_they_go_one_after_the_other() -> None:
    """One that does not know the producer would take the second, should it refuse the first."""
    lane, (first, _, _) = lane_with(1, 1, 1)
    lane.is_known = False
    lane.take(named=True)
    assert not lane.may_send()
    lane.written(first)
    assert lane.may_send()
    lane.take(named=True)
    assert lane.may_send()


@pytest.mark.parametrize(
    ("identity", "was_refused", "is_known"),
    [(SECOND, False, True), (SECOND, True, False), (Identity(8, 0), False, False)],
)
def test_a_leader_knows_the_next_epoch_but_not_another_id_and_not_what_it_has_lost(
    identity: Identity, was_refused: bool, is_known: bool
) -> None:
    lane, (first, _) = lane_with(1, 1)
    lane.take(named=True)
    if was_refused:
        lane.refused_as_out_of_order(first)
    else:
        refused_for_good(lane, first)
    lane.restart(identity)
    assert lane.is_known is is_known


def test_a_batch_that_came_back_goes_only_when_nothing_else_is_under_way() -> None:
    lane, (first, second) = lane_with(1, 1)
    taken(lane, 2)
    lost(lane, first)
    assert not lane.may_send()
    lost(lane, second)
    assert lane.may_send()
    assert lane.take(named=True) is first
    assert not lane.may_send()


def test_nothing_new_goes_beside_a_batch_that_is_sent_again() -> None:
    lane, (first, second) = lane_with(1, 1)
    lane.take(named=True)
    lost(lane, first)
    lane.take(named=True)
    assert lane.waiting[0] is second
    assert not lane.may_send()
    lane.written(first)
    assert lane.may_send()


def test_nothing_goes_while_the_lane_must_restart() -> None:
    lane, (first, _) = lane_with(1, 1)
    lane.take(named=True)
    assert lane.refused_as_out_of_order(first)
    assert not lane.may_send()
    assert lane.can_restart()


def test_the_oldest_is_the_one_that_nothing_precedes_neither_waiting_nor_under_way() -> None:
    lane, (first, second, third) = lane_with(1, 1, 1)
    taken(lane, 3)
    assert lane.is_oldest(first)
    assert not lane.is_oldest(third)
    lost(lane, first)
    assert not lane.is_oldest(second)
    lane.waiting.popleft()
    assert lane.is_oldest(second)
    lane.written(second)
    assert lane.is_oldest(third)


# -- gaps


def test_a_batch_that_was_never_sent_leaves_no_gap() -> None:
    lane, (first, _) = lane_with(1, 1)
    lane.waiting.popleft()
    lane.failed(first)
    assert lane.gap is None
    assert lane.may_send()
    assert not lane.can_restart()


def test_a_batch_that_failed_after_it_was_sent_leaves_a_gap_and_nothing_new_goes() -> None:
    lane, (first, second) = lane_with(1, 1)
    lane.take(named=True)
    lost(lane, first)
    lane.waiting.popleft()
    lane.failed(first)
    assert lane.gap is first
    assert lane.waiting[0] is second
    assert not lane.may_send()
    assert lane.can_restart()


def test_the_lane_restarts_only_when_nothing_is_under_way() -> None:
    lane, (first, second, _) = lane_with(1, 1, 1)
    taken(lane, 2)
    refused_for_good(lane, first)
    assert not lane.can_restart()
    lane.written(second)
    lane.gap = first  # had it stayed
    assert lane.can_restart()


def test_what_follows_a_gap_is_tried_under_its_name_before_the_lane_restarts() -> None:
    lane, (first, second) = lane_with(1, 1)
    taken(lane, 2)
    refused_for_good(lane, first)
    lost(lane, second)
    assert not lane.can_restart()
    assert lane.may_send()


def test_a_later_batch_that_is_written_closes_the_gap() -> None:
    lane, (first, second, _) = lane_with(1, 1, 1)
    taken(lane, 2)
    lost(lane, first)
    lane.waiting.popleft()
    lane.failed(first)
    lane.written(second)
    assert lane.gap is None
    assert lane.may_send()


def test_an_earlier_batch_that_is_written_does_not_close_the_gap() -> None:
    lane, (first, second) = lane_with(1, 1)
    taken(lane, 2)
    refused_for_good(lane, second)
    lane.written(first)
    assert lane.gap is second
    assert lane.can_restart()


def test_the_late_success_of_the_gap_itself_closes_it() -> None:
    lane, (first, _) = lane_with(1, 1)
    lane.take(named=True)
    first.in_doubt = True
    lane.failed(first)
    assert not lane.may_send()
    assert not lane.can_restart()  # its answer is still to come
    lane.written(first)
    assert lane.gap is None
    assert lane.may_send()


def test_of_two_gaps_the_newer_one_has_to_be_closed() -> None:
    lane, (first, second, third, _) = lane_with(1, 1, 1, 1)
    taken(lane, 3)
    refused_for_good(lane, second)
    refused_for_good(lane, first)
    assert lane.gap is second
    lane.written(third)
    assert lane.gap is None


def test_the_late_success_of_the_older_of_two_gaps_closes_nothing() -> None:
    lane, (first, second, _) = lane_with(1, 1, 1)
    taken(lane, 2)
    for batch in (first, second):
        batch.in_doubt = True
        lane.failed(batch)
    lane.written(first)
    assert lane.gap is second
    lane.written(second)
    assert lane.gap is None


def test_a_gap_across_the_wrap_is_closed_by_what_follows_it() -> None:
    lane, (first, second, _) = lane_with(1, 1, 1)
    lane.next_sequence = 2**31 - 1
    taken(lane, 2)
    assert second.base_sequence == 0
    refused_for_good(lane, first)
    lane.written(second)
    assert lane.gap is None
