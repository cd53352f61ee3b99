"""One partition's way out: names, order, gaps, and who may be named anew."""

from __future__ import annotations

import pytest

from semel.client.producer.batch import NOBODY, Identity, ProducerBatch
from semel.client.producer.lane import Lane
from semel.records.sequences import NO_SEQUENCE

FIRST = Identity(7, 0)
SECOND = Identity(7, 1)


def filled(count: int = 1) -> ProducerBatch:
    batch = ProducerBatch("t", 0, 0.0)
    for _ in range(count):
        batch.append(None, b"v", 0, None, 12)
    return batch


def lane_with(*counts: int, identity: Identity = FIRST) -> tuple[Lane, list[ProducerBatch]]:
    lane = Lane("t", 0)
    lane.identity = identity
    lane.is_known = True
    batches = [filled(count) for count in counts]
    lane.waiting.extend(batches)
    return lane, batches


def taken(lane: Lane, count: int) -> list[ProducerBatch]:
    return [lane.take(named=True) for _ in range(count)]


def lost(lane: Lane, *batches: ProducerBatch) -> None:
    """Their answers will not come."""
    for batch in batches:
        batch.in_doubt = True
        lane.put_back(batch)


def refused_for_good(lane: Lane, batch: ProducerBatch) -> None:
    lane.forget(batch)
    lane.failed(batch)


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


# -- other names


def test_a_restart_begins_at_zero_under_the_new_identity_and_in_the_old_order() -> None:
    lane, (first, second, third, fourth) = lane_with(1, 2, 3, 4)
    taken(lane, 3)
    refused_for_good(lane, first)
    lane.put_back(third)
    lane.put_back(second)
    assert lane.restart(SECOND) == []
    assert list(lane.waiting) == [second, third, fourth]
    assert [batch.has_sequence for batch in lane.waiting] == [False, False, False]
    assert lane.gap is None
    assert taken(lane, 3) == [second, third, fourth]
    assert [(batch.identity, batch.base_sequence) for batch in (second, third, fourth)] == [
        (SECOND, 0),
        (SECOND, 2),
        (SECOND, 5),
    ]


def test_a_batch_in_doubt_behind_a_gap_in_doubt_is_never_named_anew() -> None:
    lane, (first, second, third) = lane_with(1, 1, 1)
    taken(lane, 2)
    lost(lane, first, second)
    lane.waiting.popleft()
    lane.failed(first)
    assert lane.restart(SECOND) == [second]
    assert list(lane.waiting) == [third]


def test_a_batch_in_doubt_behind_one_that_was_refused_for_good_may_be_named_anew() -> None:
    """The broker takes nothing behind a batch that is not there: so it was never written."""
    lane, (first, second) = lane_with(1, 1)
    taken(lane, 2)
    refused_for_good(lane, first)
    lost(lane, second)
    assert lane.restart(SECOND) == []
    assert not second.has_sequence
    assert not second.in_doubt


def test_a_batch_in_doubt_before_one_that_was_refused_for_good_is_not_named_anew() -> None:
    lane, (first, second, third) = lane_with(1, 1, 1)
    taken(lane, 3)
    lost(lane, first)
    refused_for_good(lane, second)
    lost(lane, third)
    assert lane.restart(SECOND) == [first]
    assert list(lane.waiting) == [third]


def test_a_batch_in_doubt_is_not_named_anew_because_one_before_it_that_was_refused_had_been_in_doubt() -> None:
    """The refusal of the last attempt says nothing about the first one, whose answer was lost."""
    lane, (first, second) = lane_with(1, 1)
    taken(lane, 2)
    first.in_doubt = True
    refused_for_good(lane, first)
    lost(lane, second)
    assert lane.restart(SECOND) == [second]


def test_out_of_order_in_doubt_and_no_gap_known_cannot_be_named_anew() -> None:
    lane, (first,) = lane_with(1)
    lane.take(named=True)
    first.in_doubt = True
    assert not lane.refused_as_out_of_order(first)
    assert not lane.must_restart


def test_out_of_order_in_doubt_behind_a_gap_that_was_refused_is_named_anew() -> None:
    lane, (first, second) = lane_with(1, 1)
    taken(lane, 2)
    refused_for_good(lane, first)
    second.in_doubt = True
    assert lane.refused_as_out_of_order(second)
    assert lane.restart(SECOND) == []
    assert list(lane.waiting) == [second]


def test_out_of_order_in_doubt_before_a_gap_that_was_refused_cannot_be_named_anew() -> None:
    lane, (first, second) = lane_with(1, 1)
    taken(lane, 2)
    lost(lane, first)
    refused_for_good(lane, second)
    lane.take(named=True)
    assert not lane.refused_as_out_of_order(first)


def test_out_of_order_in_doubt_behind_a_gap_in_doubt_cannot_be_named_anew() -> None:
    lane, (first, second) = lane_with(1, 1)
    taken(lane, 2)
    first.in_doubt = second.in_doubt = True
    lane.failed(first)
    lane.forget(first)
    assert not lane.refused_as_out_of_order(second)


def test_what_follows_an_out_of_order_batch_that_was_never_in_doubt_may_be_named_anew() -> None:
    lane, (first, second) = lane_with(1, 1)
    taken(lane, 2)
    assert lane.refused_as_out_of_order(first)
    lost(lane, second)
    assert lane.restart(SECOND) == []
    assert list(lane.waiting) == [first, second]


def test_doubts_of_an_earlier_gap_do_not_outlive_it() -> None:
    lane, (first, second, third, _) = lane_with(1, 1, 1, 1)
    taken(lane, 1)
    first.in_doubt = True
    lane.failed(first)
    lane.written(first)
    taken(lane, 2)
    refused_for_good(lane, second)
    lost(lane, third)
    assert lane.restart(SECOND) == []


def test_another_identity_is_adopted_only_when_nothing_bears_the_old_one() -> None:
    lane, (first, second) = lane_with(2, 1)
    lane.take(named=True)
    lane.adopt(SECOND)
    assert lane.identity == FIRST
    lost(lane, first)
    lane.adopt(SECOND)
    assert lane.identity == FIRST
    lane.take(named=True)
    lane.written(first)
    lane.adopt(SECOND)
    assert lane.identity == SECOND
    lane.take(named=True)
    assert (second.identity, second.base_sequence) == (SECOND, 0)


def test_the_identity_that_the_lane_has_is_not_adopted_again() -> None:
    lane, (first, second) = lane_with(2, 1)
    lane.take(named=True)
    lane.written(first)
    lane.adopt(FIRST)
    lane.take(named=True)
    assert second.base_sequence == 2


def test_no_more_batches_are_under_way_than_a_broker_remembers() -> None:
    """Also when its leader has moved, and the old one has not answered yet: the limit of connections does not help."""
    lane, _ = lane_with(*([1] * 6))
    taken(lane, 5)
    assert not lane.may_send()
