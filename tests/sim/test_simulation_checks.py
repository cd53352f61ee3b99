"""The checks of the simulated world, each shown something that is wrong."""

from __future__ import annotations

import errno
import logging
from typing import Any, NamedTuple

from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import Transaction
from semel.log.errors import BrokenLog
from semel.sim.history import Client, Finish, History, Outcome, Poll, Send, flat
from semel.sim.world.afterwards import Logged, _check_acknowledged, _check_committed, _check_owners
from semel.sim.world.findings import Findings
from semel.sim.world.overdue import Overdue
from semel.sim.world.watching import Complaints, Watch, is_of_the_disk

PLACE = "records-0"


def new_findings() -> Findings:
    return Findings(lambda: 0.0)


def kinds(findings: Findings) -> set[str]:
    return {violation.kind for violation in findings.violations}


def sent(value: int, offset: int = -1, process: str = "one", outcome: Outcome = Outcome.OK) -> Send:
    return Send(process=process, place=PLACE, value=value, offset=offset, outcome=outcome)


def found_in(logged: list[Logged], *sends: Send) -> set[str]:
    findings = new_findings()
    _check_acknowledged(PLACE, logged, {send.value: send for send in sends}, findings)
    return kinds(findings)


def test_a_log_that_holds_what_was_acknowledged_is_right() -> None:
    assert found_in([Logged(0, 7, 1, True), Logged(1, 8, 1, True)], sent(7, 0), sent(8, 1)) == set()


def test_a_log_without_an_acknowledged_record_is_wrong() -> None:
    assert found_in([], sent(7, 0)) == {"log lacks what was acknowledged"}
    assert found_in([Logged(0, 8, 1, True)], sent(7, 0), sent(8)) == {"log lacks what was acknowledged"}


def test_a_record_that_stands_twice_or_was_never_sent_is_wrong() -> None:
    assert found_in([Logged(0, 7, 1, True), Logged(1, 7, 1, True)], sent(7, 0)) == {"log holds a duplicate"}
    assert found_in([Logged(0, 9, 1, True)]) == {"log holds a stranger"}
    assert found_in([Logged(0, 7, 1, True)], sent(7, outcome=Outcome.FAIL)) == {"log holds what failed"}


def test_a_producer_id_with_two_owners_is_wrong() -> None:
    history = History()
    for name in ("one", "two", "three"):
        history.add_client(Client(name, "transactor", transactional_id="id" if name != "three" else None))
    sends = {1: sent(1, process="one"), 2: sent(2, process="two"), 3: sent(3, process="three")}
    findings = new_findings()
    _check_owners([Logged(0, 1, 5, True), Logged(1, 2, 5, True)], sends, history, {}, findings)
    assert kinds(findings) == set(), "both hold the same transactional id"
    _check_owners([Logged(0, 1, 5, True), Logged(1, 3, 5, True)], sends, history, {}, findings)
    assert kinds(findings) == {"producer id repeated"}


def read_by_all(*values: tuple[int, int]) -> set[str]:
    logged = [Logged(0, 10, 1, True), Logged(1, 11, 1, False), Logged(3, 12, 1, True)]
    history = History()
    poll = history.begin(Poll(process="last-committed", reads_committed=True))
    poll.read = {PLACE: flat(values)}
    history.ok(poll)
    history.ok(history.begin(Finish(process="last-committed", place=PLACE, reads_committed=True)))
    findings = new_findings()
    _check_committed(PLACE, logged, history, findings)
    return kinds(findings)


def test_readers_of_committed_data_get_what_the_markers_have_committed() -> None:
    assert read_by_all((0, 10), (3, 12)) == set()
    assert read_by_all((0, 10), (1, 11), (3, 12)) == {"read differs from the log"}
    assert read_by_all((3, 12)) == {"read differs from the log"}
    assert read_by_all((0, 10)) == {"read differs from the log"}


def broken_by(cause: BaseException | None) -> BrokenLog:
    broken = BrokenLog("it cannot be cut back after a failed write")
    broken.__cause__ = cause
    return broken


def test_a_node_may_end_itself_when_the_disk_leaves_it_no_choice_and_else_not() -> None:
    refused = OSError(errno.EIO, "input/output error")
    assert is_of_the_disk(refused)
    assert is_of_the_disk(broken_by(refused)), "a write that failed and could not be undone either"
    assert not is_of_the_disk(broken_by(None)), "the node's own mistake"
    assert not is_of_the_disk(broken_by(ValueError()))
    assert not is_of_the_disk(ValueError())


def complaints_about(error: BaseException) -> set[str]:
    findings = new_findings()
    told = (type(error), error, None)
    Complaints(findings).emit(logging.LogRecord("semel", logging.ERROR, "", 0, "a request failed", None, told))
    return kinds(findings)


def test_a_mistake_that_was_logged_and_survived_is_seen() -> None:
    assert complaints_about(KeyError("k")) == {"unexpected error"}
    assert complaints_about(broken_by(None)) == {"unexpected error"}
    assert complaints_about(broken_by(OSError())) == set()


class FakeLog(NamedTuple):
    high_watermark: int
    last_stable_offset: int


class FakePartition:
    topic, topic_id, index = "t", b"t", 0
    waiting: tuple[int, ...] = ()
    watchers: tuple[int, ...] = ()

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.wake: Any = None

    def watch(self, watcher: object, wake: Any) -> None:
        self.wake = wake


class FakeBroker:
    def __init__(self, partition: FakePartition) -> None:
        self.partition = partition
        self.topics = self

    def online(self) -> list[FakePartition]:
        return [self.partition]


def test_offsets_that_go_back_are_seen_also_over_a_restart() -> None:
    findings = new_findings()
    watch = Watch(findings)
    partition = FakePartition(FakeLog(5, 4))
    broker: Any = FakeBroker(partition)
    watch.follow(broker)
    partition.log = FakeLog(9, 9)
    partition.wake()
    assert kinds(findings) == set()
    again: Any = FakeBroker(FakePartition(FakeLog(9, 8)))
    watch.follow(again)
    assert kinds(findings) == {"last stable offset back"}
    third: Any = FakeBroker(FakePartition(FakeLog(8, 8)))
    watch.follow(third)
    assert kinds(findings) == {"last stable offset back", "high watermark back"}


def test_who_waits_without_bound_is_seen() -> None:
    findings = new_findings()
    watch = Watch(findings, lambda: 1_000)
    partition = FakePartition(FakeLog(0, 0))
    partition.waiting = tuple(range(1_000))
    broker: Any = FakeBroker(partition)
    watch.follow(broker)
    assert kinds(findings) == {"queue without bound", "too many tasks"}


def open_for(timeout_ms: int, transactional_id: str = "id") -> Transaction:
    return Transaction(transactional_id, 7, 0, timeout_ms, TransactionState.ONGOING, started_ms=1)


def test_a_transaction_that_is_open_for_longer_than_it_may_is_seen() -> None:
    now_s, may_act = 100.0, True
    findings = new_findings()
    overdue = Overdue(findings, lambda: now_s, lambda: may_act)
    transactions = [open_for(4000)]
    for _ in range(110):
        now_s += 0.05
        overdue.look(transactions, lambda one: False)
    assert kinds(findings) == set(), "the coordinator looks twice a second"
    for _ in range(5):
        now_s += 0.05
        overdue.look(transactions, lambda one: False)
    assert kinds(findings) == {"transaction overdue"}


def test_the_time_in_which_the_node_could_do_nothing_does_not_count() -> None:
    now_s, may_act = 100.0, True
    findings = new_findings()
    overdue = Overdue(findings, lambda: now_s, lambda: may_act)
    for _ in range(3):
        for able in (True, False, True):
            now_s, may_act = now_s + 1.5, able
            overdue.look([open_for(4000)], lambda one: False)
    assert kinds(findings) == set()
    overdue.restarted()
    for _ in range(3):
        now_s += 1.5
        overdue.look([open_for(4000)], lambda one: False)
    assert kinds(findings) == set(), "a start begins anew"
    ended = open_for(4000)._replace(state=TransactionState.PREPARE_COMMIT)
    for _ in range(5):
        now_s += 1.5
        overdue.look([ended], lambda one: False)
    assert kinds(findings) == set()
