"""Transactions that show too early, in part, or although they were aborted, in histories told by hand."""

from __future__ import annotations

import pytest
from told_history import Told

from semel.sim.history import Client, End, Outcome, Poll
from semel.sim.judging.anomalies import Kind


def test_a_committed_transaction_that_is_read_is_fine() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.send(2, 0, transaction=1, place="a-1")
    told.commit(1)
    told.read_to_end({"a-0": [(0, 1)], "a-1": [(0, 2)]}, committed=True)
    assert told.found() == set()


@pytest.mark.parametrize("ends", ["aborted", "left open", "refused"])
def test_a_record_of_a_transaction_that_was_never_committed_must_not_be_read(ends: str) -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    if ends == "refused":
        told.commit(1, Outcome.FAIL)
    if ends != "left open":
        told.abort(1)
    told.poll({"a-0": [(0, 1)]})
    assert told.found() == set(), "readers of everything may see it"
    told.poll({"a-0": [(0, 1)]}, process="k", committed=True)
    assert told.found() == {Kind.ABORTED_READ}


def test_an_abort_of_which_nobody_knows_is_an_abort() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.abort(1, Outcome.INFO)
    told.poll({"a-0": [(0, 1)]}, committed=True)
    assert told.found() == {Kind.ABORTED_READ}


def test_a_transaction_whose_commit_nobody_knows_of_may_be_there_or_not() -> None:
    for read in ([(0, 1), (1, 2)], []):
        told = Told()
        told.send(1, 0, transaction=1)
        told.send(2, 1, transaction=1)
        told.commit(1, Outcome.INFO)
        told.read_to_end({"a-0": read}, committed=True)
        assert told.found() == set()


def test_a_part_of_a_transaction_whose_commit_nobody_knows_of_is_torn() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.send(2, 0, transaction=1, place="a-1")
    told.send(3, 1, transaction=1)
    told.commit(1, Outcome.INFO)
    told.read_to_end({"a-0": [(0, 1), (1, 3)], "a-1": []}, committed=True)
    assert told.found() == {Kind.TORN}
    first = told.judged().findings[Kind.TORN].first
    assert "2 of 3 records can be read, but not 2 (" in first


def test_a_part_of_a_committed_transaction_is_torn_and_lost() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.send(2, 0, transaction=1, place="a-1")
    told.commit(1)
    told.read_to_end({"a-0": [(0, 1)], "a-1": []}, committed=True)
    assert told.found() == {Kind.TORN, Kind.UNSEEN}


def test_a_part_that_was_not_read_to_the_end_yet_is_not_torn() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.send(2, 0, transaction=1, place="a-1")
    told.commit(1)
    told.read_to_end({"a-0": [(0, 1)]}, committed=True)
    assert told.found() == set()


def test_a_record_that_could_not_be_sent_is_no_part_of_its_transaction() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.send(2, transaction=1, outcome=Outcome.FAIL)
    told.commit(1)
    told.read_to_end({"a-0": [(0, 1)]}, committed=True)
    assert told.found() == set()


def test_a_record_that_is_read_before_its_commit_is_asked_for_is_early() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    told.poll({"a-0": [(0, 1)]}, committed=True)
    told.commit(1)
    assert told.found() == {Kind.EARLY_READ}


def test_a_record_that_is_read_while_its_commit_is_under_way_is_in_time() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    poll = told.begin(Poll(process="c", reads_committed=True))
    end = told.begin(End(process="p", transaction=1, is_commit=True))
    told.polled(poll, {"a-0": [(0, 1)]})
    told.ok(end)
    assert told.found() == set()


def test_of_two_readers_the_early_one_is_found() -> None:
    told = Told()
    told.send(1, 0, transaction=1)
    late = told.begin(Poll(process="late", reads_committed=True))
    early = told.begin(Poll(process="early", reads_committed=True))
    told.polled(early, {"a-0": [(0, 1)]})
    told.commit(1)
    told.polled(late, {"a-0": [(0, 1)]})
    assert "early" in told.judged().findings[Kind.EARLY_READ].first


def two_instances() -> Told:
    told = Told()
    for name in ("old", "new"):
        told.add_client(Client(name, "transactional", transactional_id="id"))
    told.init("old")
    return told


def test_a_commit_after_a_newer_producer_took_over_is_unfenced() -> None:
    told = two_instances()
    told.send(1, 0, process="old", transaction=1)
    told.init("new")
    told.commit(1, process="old")
    assert told.found() == {Kind.UNFENCED}


def test_a_commit_that_is_refused_after_a_takeover_is_fenced() -> None:
    told = two_instances()
    told.send(1, 0, process="old", transaction=1)
    told.init("new")
    told.commit(1, Outcome.FAIL, process="old")
    told.abort(1, process="old")
    assert told.found() == set()


def test_a_commit_that_was_asked_for_before_the_takeover_was_over_is_in_time() -> None:
    told = two_instances()
    told.send(1, 0, process="old", transaction=1)
    end = told.begin(End(process="old", transaction=1, is_commit=True))
    told.init("new")
    told.ok(end)
    assert told.found() == set()


def test_a_takeover_that_failed_fences_nobody_for_sure() -> None:
    told = two_instances()
    told.send(1, 0, process="old", transaction=1)
    told.init("new", Outcome.INFO)
    told.commit(1, process="old")
    assert told.found() == set()


def test_a_transaction_without_records_is_no_matter_for_the_broker() -> None:
    told = two_instances()
    told.send(1, process="old", transaction=1, outcome=Outcome.FAIL)
    told.init("new")
    told.commit(1, process="old")
    assert told.found() == set()


def test_the_newer_producer_may_commit() -> None:
    told = two_instances()
    told.init("new")
    told.send(1, 0, process="new", transaction=1)
    told.commit(1, process="new")
    assert told.found() == set()
