"""When batches get other names, and which never do."""

from __future__ import annotations

from lane_steps import FIRST, SECOND, lane_with, lost, refused_for_good, taken

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
