"""Lost, unseen, doubled and unexplained records in histories told by hand; and what only looks like it."""

from __future__ import annotations

from told_history import Told

from semel.sim.history import Client, Outcome
from semel.sim.judging.anomalies import Kind


def test_a_calm_history_has_no_anomaly() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, 1)
    told.send(3, 0, place="a-1")
    told.read_to_end({"a-0": [(0, 1), (1, 2)], "a-1": [(0, 3)]})
    told.read_to_end({"a-0": [(0, 1), (1, 2)], "a-1": [(0, 3)]}, process="k", committed=True)
    assert told.found() == set()
    assert told.judged().is_clean


def test_an_acknowledged_record_below_the_last_read_one_that_nobody_reads_is_lost() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, 1)
    told.send(3, 2)
    told.poll({"a-0": [(0, 1)]})
    told.poll({"a-0": [(2, 3)]}, process="another")
    report = told.judged()
    assert report.forbidden_kinds() == {Kind.LOST_WRITE}
    assert report.findings[Kind.LOST_WRITE].count == 1
    assert "2 (sent by p to a-0" in report.findings[Kind.LOST_WRITE].first


def test_an_acknowledged_record_behind_the_last_read_one_is_not_lost_yet() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, 1)
    told.poll({"a-0": [(0, 1)]})
    assert told.found() == set()


def test_an_acknowledged_record_that_is_not_there_at_the_end_is_unseen() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, 1)
    told.read_to_end({"a-0": [(0, 1)]})
    assert told.found() == {Kind.UNSEEN}


def test_a_record_of_which_nobody_knows_may_be_there_or_not() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, outcome=Outcome.INFO)
    told.send(3, outcome=Outcome.INFO)
    told.send(4, 2)
    told.read_to_end({"a-0": [(0, 1), (1, 3), (2, 4)]})
    assert told.found() == set()


def test_a_record_that_failed_for_sure_need_not_be_there_but_must_not_be_read() -> None:
    told = Told()
    told.send(1, outcome=Outcome.FAIL)
    told.read_to_end({"a-0": []})
    assert told.found() == set()
    told.poll({"a-0": [(0, 1)]}, process="late")
    assert told.found() == {Kind.ABORTED_READ}


def test_a_committed_record_that_only_readers_of_everything_see_is_lost_for_the_others() -> None:
    told = Told()
    told.send(1, 0, transaction=7)
    told.commit(7)
    told.send(2, 2)
    told.read_to_end({"a-0": [(0, 1), (2, 2)]})
    told.poll({"a-0": [(2, 2)]}, process="k", committed=True)
    assert told.found() == {Kind.LOST_WRITE}


def test_a_loss_is_told_once_although_both_kinds_of_readers_miss_it() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, 1)
    for process, committed in (("c", False), ("k", True)):
        told.poll({"a-0": [(1, 2)]}, process=process, committed=committed)
    assert told.judged().findings[Kind.LOST_WRITE].count == 1


def test_a_loss_is_allowed_to_a_producer_that_did_not_wait_for_all() -> None:
    told = Told()
    told.add_client(Client("careless", "plain", waits_for_all=False))
    told.send(1, process="careless")
    told.read_to_end({"a-0": []})
    report = told.judged()
    assert report.findings[Kind.UNSEEN].allowed == 1
    assert report.is_clean


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    told = Told()
    told.send(1, 0)
    told.read_to_end({"a-0": [(0, 1), (1, 1)]})
    assert told.found() == {Kind.DUPLICATE}


def test_a_value_in_two_partitions_is_a_duplicate() -> None:
    told = Told()
    told.send(1, outcome=Outcome.INFO)
    told.read_to_end({"a-0": [(0, 1)], "a-1": [(0, 1)]})
    assert told.found() == {Kind.DUPLICATE}


def test_a_value_that_two_readers_and_its_sender_place_alike_is_no_duplicate() -> None:
    told = Told()
    told.send(1, 5)
    told.poll({"a-0": [(5, 1)]})
    told.poll({"a-0": [(5, 1)]}, process="another")
    assert told.found() == set()


def test_a_duplicate_is_allowed_to_a_producer_without_idempotence() -> None:
    told = Told()
    told.add_client(Client("simple", "plain", is_idempotent=False))
    told.send(1, 1, process="simple")
    told.read_to_end({"a-0": [(0, 1), (1, 1)]})
    report = told.judged()
    assert set(report.findings) == {Kind.DUPLICATE}
    assert report.is_clean


def test_one_offset_with_two_values_is_inconsistent() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, outcome=Outcome.INFO)
    told.poll({"a-0": [(0, 2)]})
    assert Kind.INCONSISTENT_OFFSET in told.found()
    assert "1 and 2" in told.judged().findings[Kind.INCONSISTENT_OFFSET].first


def test_one_offset_in_two_partitions_may_hold_two_values() -> None:
    told = Told()
    told.send(1, 0)
    told.send(2, 0, place="a-1")
    told.poll({"a-0": [(0, 1)], "a-1": [(0, 2)]})
    assert told.found() == set()


def test_a_value_that_nobody_sent_is_a_phantom() -> None:
    told = Told()
    told.poll({"a-0": [(0, 99)]})
    assert told.found() == {Kind.PHANTOM}


def test_an_acknowledgement_without_an_offset_is_told_only_of_who_waits_for_all() -> None:
    told = Told()
    told.send(1)
    assert told.found() == {Kind.UNPLACED}
    assert not told.judged().is_clean
    told = Told()
    told.add_client(Client("simple", "plain", is_idempotent=False))
    told.send(1, process="simple")
    assert told.judged().is_clean
    told = Told()
    told.add_client(Client("careless", "plain", waits_for_all=False))
    told.send(1, process="careless")
    assert told.found() == set()


def test_a_record_that_was_acknowledged_without_an_offset_stands_where_it_is_read() -> None:
    told = Told()
    told.add_client(Client("careless", "plain", waits_for_all=False))
    told.send(1, process="careless")
    told.poll({"a-0": [(5, 1)]})
    assert told.found() == set()
