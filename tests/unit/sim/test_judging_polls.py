"""Readers that go back, leave out or never arrive, in histories told by hand; and what only looks like it."""

from __future__ import annotations

from told_history import Told

from semel.sim.history import Outcome, Poll
from semel.sim.judging.anomalies import Kind


def three_sent() -> Told:
    told = Told()
    for value in (1, 2, 3):
        told.send(value, value - 1)
    return told


def test_a_poll_that_leaves_out_a_record_inside_is_told() -> None:
    told = three_sent()
    told.poll({"a-0": [(0, 1), (2, 3)]})
    told.poll({"a-0": [(1, 2)]}, process="another")
    assert told.found() == {Kind.INSIDE_POLL_SKIP}


def test_a_poll_that_goes_on_behind_a_record_is_told() -> None:
    told = three_sent()
    told.poll({"a-0": [(0, 1)]})
    told.poll({"a-0": [(2, 3)]})
    told.poll({"a-0": [(1, 2)]}, process="another")
    assert told.found() == {Kind.POLL_SKIP}


def test_offsets_without_a_record_may_be_left_out() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.commit(1)
    told.send(2, 2)
    told.poll({"a-0": [(0, 1)]})
    told.poll({"a-0": [(2, 2)]})
    assert told.found() == set()


def test_readers_of_committed_data_leave_out_what_was_aborted_but_others_do_not() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, 1, transaction=1)
    told.abort(1)
    told.send(3, 3)
    told.poll({"a-0": [(0, 1), (3, 3)]}, committed=True)
    told.poll({"a-0": [(1, 2)]}, process="another")
    assert told.found() == set()
    told.poll({"a-0": [(0, 1), (3, 3)]}, process="third")
    assert told.found() == {Kind.INSIDE_POLL_SKIP}


def test_what_one_reader_of_committed_data_saw_the_next_must_see_too() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, transaction=1, outcome=Outcome.INFO)
    told.commit(1, Outcome.INFO)
    told.send(3, 3)
    told.poll({"a-0": [(0, 1), (1, 2), (3, 3)]}, committed=True)
    told.poll({"a-0": [(0, 1), (3, 3)]}, process="another", committed=True)
    assert told.found() == {Kind.INSIDE_POLL_SKIP}


def test_what_may_not_be_committed_may_be_left_out() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, 1, transaction=1)
    told.commit(1, Outcome.INFO)
    told.send(3, 3)
    told.poll({"a-0": [(0, 1), (1, 2), (3, 3)]}, process="all")
    told.poll({"a-0": [(0, 1), (3, 3)]}, committed=True)
    assert told.found() == set()


def test_behind_the_last_record_that_all_must_see_nothing_can_be_left_out() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, 2, transaction=1)
    told.poll({"a-0": [(0, 1), (2, 2)]}, committed=True)
    assert told.found() == {Kind.ABORTED_READ}


def test_a_reader_that_goes_back_is_told() -> None:
    told = three_sent()
    told.poll({"a-0": [(0, 1), (1, 2)]})
    told.poll({"a-0": [(1, 2), (2, 3)]})
    assert told.found() == {Kind.POLL_BACK}


def test_a_poll_that_goes_back_inside_is_told() -> None:
    told = three_sent()
    told.poll({"a-0": [(0, 1), (1, 2), (0, 1), (1, 2), (2, 3)]})
    assert told.found() == {Kind.INSIDE_POLL_BACK}


def test_a_reader_that_was_moved_may_go_back_or_on() -> None:
    told = three_sent()
    told.poll({"a-0": [(0, 1), (1, 2), (2, 3)]})
    told.move("c", {"a-0": 0})
    told.poll({"a-0": [(0, 1)]})
    told.move("c", {"a-0": -1})
    told.poll({"a-0": [(2, 3)]})
    assert told.found() == set()


def test_a_reader_that_was_moved_to_an_offset_goes_on_there() -> None:
    told = three_sent()
    told.move("c", {"a-0": 0})
    told.poll({"a-0": [(1, 2), (2, 3)]})
    told.poll({"a-0": [(0, 1)]}, process="another")
    assert told.found() == {Kind.POLL_SKIP}


def test_a_reader_that_was_moved_in_one_partition_goes_on_in_the_other() -> None:
    told = three_sent()
    told.send(4, 0, place="a-1")
    told.poll({"a-0": [(0, 1)], "a-1": [(0, 4)]})
    told.move("c", {"a-1": -1})
    told.poll({"a-0": [(0, 1), (1, 2), (2, 3)]})
    assert told.found() == {Kind.POLL_BACK}


def test_a_move_inside_of_a_poll_comes_before_what_the_poll_gave() -> None:
    told = three_sent()
    told.poll({"a-0": [(0, 1), (1, 2), (2, 3)]})
    poll = told.begin(Poll(process="c", reads_committed=False))
    told.move("c", {"a-0": -1})
    told.polled(poll, {"a-0": [(0, 1)]})
    told.poll({"a-0": [(1, 2)]})
    assert told.found() == set()


def test_two_readers_have_nothing_to_do_with_each_other() -> None:
    told = three_sent()
    told.poll({"a-0": [(0, 1), (1, 2), (2, 3)]})
    told.poll({"a-0": [(0, 1)]}, process="another")
    assert told.found() == set()


def test_a_reader_that_does_not_get_to_the_end_is_stuck() -> None:
    told = three_sent()
    told.finish("c", outcome=Outcome.FAIL)
    assert told.found() == {Kind.STUCK}


def test_a_reader_that_is_refused_is_told_of_once_for_each_reason() -> None:
    told = three_sent()
    for error, outcome in (("gone", Outcome.FAIL), ("gone", Outcome.FAIL), ("later", Outcome.INFO)):
        told.end(told.begin(Poll(process="c", reads_committed=False)), outcome, error)
    report = told.judged()
    assert set(report.findings) == {Kind.UNREADABLE}
    assert report.findings[Kind.UNREADABLE].count == 1


def test_an_empty_poll_is_not_kept() -> None:
    told = Told()
    told.poll({})
    assert told.operations == []
