"""The order of sends, and what groups have handled, in histories told by hand."""

from __future__ import annotations

from told_history import Told

from semel.sim.history import Client, Outcome
from semel.sim.judging.anomalies import Kind
from semel.sim.judging.consumption import PIPELINE


def test_a_later_send_that_stands_before_an_earlier_one_is_told() -> None:
    told = Told()
    told.send(1, 5)
    told.send(2, 4)
    assert told.found() == {Kind.SEND_BACK}


def test_two_sends_of_one_producer_at_one_offset_are_told() -> None:
    told = Told()
    told.send(1, 5)
    told.send(2, 5)
    assert told.found() == {Kind.SEND_BACK, Kind.INCONSISTENT_OFFSET}


def test_in_a_transaction_it_has_a_name_of_its_own() -> None:
    told = Told()
    told.send(1, 5, transaction=1)
    told.send(2, 4, transaction=1)
    assert told.found() == {Kind.INSIDE_SEND_BACK}


def test_other_partitions_other_producers_and_sends_in_doubt_have_no_order() -> None:
    told = Told()
    told.send(1, 5)
    told.send(2, 4, place="a-1")
    told.send(3, 3, process="another")
    told.send(4, 2, outcome=Outcome.INFO)
    told.send(5, 6)
    assert told.found() == set()


def test_a_producer_without_idempotence_may_be_out_of_order() -> None:
    told = Told()
    told.add_client(Client("simple", "plain", is_idempotent=False))
    told.send(1, 5, process="simple")
    told.send(2, 4, process="simple")
    assert told.judged().is_clean


def test_others_may_stand_between_the_records_of_a_transaction() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.send(2, 1, process="another")
    told.send(3, 2, transaction=1)
    report = told.judged()
    assert set(report.findings) == {Kind.INSIDE_SEND_SKIP}
    assert report.is_clean


def test_aborted_records_of_others_stand_between_too() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.send(2, 1, process="another", transaction=2)
    told.abort(2, process="another")
    told.send(3, 2, transaction=1)
    assert told.found() == {Kind.INSIDE_SEND_SKIP}


def test_nothing_between_the_records_of_a_transaction_is_not_told() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.send(3, 2, transaction=1)
    told.send(4, 3, transaction=1)
    told.send(5, 4, transaction=2)
    told.send(6, 7, transaction=3)
    assert told.found() == set()


def group_of_two(role: str = "group") -> Told:
    told = Told()
    for name in ("m1", "m2"):
        told.add_client(Client(name, role, group="group", transactional_id=f"id-{name}", reads_committed=True))
    told.send(1, 0)
    told.send(2, 1)
    return told


def test_what_one_member_or_the_other_has_read_was_handled() -> None:
    told = group_of_two()
    told.send(3, 2)
    told.poll({"a-0": [(0, 1), (1, 2)]}, process="m1")
    told.poll({"a-0": [(2, 3)]}, process="m2")
    told.finish("group")
    assert told.found() == set()


def test_what_no_member_has_read_is_lost_for_the_group() -> None:
    told = group_of_two()
    told.poll({"a-0": [(0, 1)]}, process="m1")
    told.poll({"a-0": [(0, 1), (1, 2)]}, process="stranger")
    told.finish("group")
    assert told.found() == {Kind.LOST_CONSUMPTION}


def test_a_group_that_is_not_at_the_end_has_lost_nothing() -> None:
    told = group_of_two()
    told.poll({"a-0": [(0, 1)]}, process="m1")
    assert told.found() == set()


def test_members_that_wait_for_nobody_may_lose_records_but_only_those_of_this_group() -> None:
    for group, is_clean in (("group", True), ("another", False)):
        told = group_of_two()
        told.add_client(Client("careless", "group", group=group, waits_for_all=False))
        told.finish("group")
        assert told.found() == {Kind.LOST_CONSUMPTION}
        assert told.judged().is_clean is is_clean


def piped() -> Told:
    told = group_of_two(PIPELINE)
    told.send(11, 0, process="m1", place="b-0", source=1, transaction=1)
    told.commit(1, process="m1")
    return told


def test_one_result_for_each_record_is_exactly_once() -> None:
    told = piped()
    told.send(12, 2, process="m2", place="b-0", source=2, transaction=2)
    told.commit(2, process="m2")
    told.read_to_end({"b-0": [(0, 11), (2, 12)]}, committed=True)
    told.finish("group", committed=True)
    assert told.found() == set()


def test_a_record_whose_result_was_aborted_and_whose_offset_was_not_is_lost() -> None:
    told = piped()
    told.send(12, 2, process="m2", place="b-0", source=2, transaction=2)
    told.abort(2, process="m2")
    told.read_to_end({"b-0": [(0, 11)]}, committed=True)
    told.finish("group", committed=True)
    assert told.found() == {Kind.LOST_CONSUMPTION}


def test_results_that_were_not_read_to_the_end_say_nothing() -> None:
    told = piped()
    told.poll({"b-0": [(0, 11)]}, committed=True)
    told.finish("group", committed=True)
    assert told.found() == set()


def test_two_results_of_one_record_are_told_if_both_can_be_read() -> None:
    told = piped()
    told.send(12, 2, process="m2", place="b-0", source=1, transaction=2)
    told.commit(2, process="m2")
    told.poll({"b-0": [(0, 11), (2, 12)]}, committed=True)
    assert told.found() == {Kind.REPEATED_CONSUMPTION}


def test_two_results_are_allowed_to_workers_without_transactions_only() -> None:
    for transactional_id, is_clean in ((None, True), ("id", False)):
        told = Told()
        told.add_client(Client("w", PIPELINE, transactional_id=transactional_id))
        told.send(1, 0)
        for value, offset in ((11, 0), (12, 1)):
            told.send(value, offset, process="w", place="b-0", source=1)
        told.poll({"b-0": [(0, 11), (1, 12)]}, committed=True)
        assert told.found() == {Kind.REPEATED_CONSUMPTION}
        assert told.judged().is_clean is is_clean


def test_a_worker_of_which_nothing_is_known_may_not_repeat() -> None:
    told = Told()
    told.send(1, 0)
    for value, offset in ((11, 0), (12, 1)):
        told.send(value, offset, place="b-0", source=1)
    told.poll({"b-0": [(0, 11), (1, 12)]}, committed=True)
    assert told.judged().forbidden_kinds() == {Kind.REPEATED_CONSUMPTION}


def test_a_second_result_that_was_aborted_is_none() -> None:
    told = piped()
    told.send(12, 2, process="m2", place="b-0", source=1, transaction=2)
    told.abort(2, process="m2")
    told.poll({"b-0": [(0, 11)]}, committed=True)
    told.poll({"b-0": [(0, 11), (2, 12)]}, process="all")
    assert told.found() == set()
