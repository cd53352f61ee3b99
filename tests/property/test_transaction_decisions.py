"""Random requests of several producer instances to one transactional id, against what must always hold.

- A producer id and epoch belong to one instance at most, and an instance that was replaced never gets anything done.
- The epochs of a producer id only grow; a new id follows when they are used up.
- A transaction ends as it was decided, and only as its owner or the coordinator decided it.
- What the log holds, replayed, is the state; and no request ever asks for a move that is not in the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from semel.coordinator.txn.decisions import (
    NOBODY,
    Identity,
    StillEnding,
    completed,
    ended_by_client,
    ended_by_coordinator,
    has_timed_out,
    initialised,
    is_expired,
    needs_new_id,
    with_partitions,
)
from semel.coordinator.txn.decisions import check_may_raise as check_raise
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import LAST_EPOCH, Transaction, Transactions, entry, tombstone
from semel.log.errors import Refused
from semel.records.read import Record
from semel.wire.errors import ErrorCode

ID = "payments"
S = TransactionState
OPEN_ERRORS = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
}


def check_refusal(refusal: Refused) -> None:
    assert refusal.code in OPEN_ERRORS, refusal


@dataclass
class Instance:
    """One producer process: what it was last told, and whether its last request is still unanswered in its eyes."""

    name: int
    identity: Identity = NOBODY
    # An instance is replaced when another one was initialised after it.
    is_replaced: bool = False


class TransactionalId(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = Transactions()
        self.records: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 1_000_000
        self.next_id = 100
        self.instances: list[Instance] = []
        self.epochs: dict[int, int] = {}
        self.decided: TransactionState | None = None

    # -- what the coordinator does with a decision

    @property
    def known(self) -> Transaction | None:
        return self.state.by_id.get(ID)

    def append(self, transaction: Transaction | None) -> None:
        key, value = tombstone(ID) if transaction is None else entry(transaction)
        self.records.append((key, value))
        self.state.replay(Record(len(self.records), self.now_ms, key, value, ()), -1)
        if transaction is None:
            return
        assert self.known == transaction, "what is written is what is known"
        before = self.epochs.get(transaction.producer_id, -1)
        assert transaction.epoch >= before, "epochs only grow"
        assert transaction.epoch <= LAST_EPOCH + 1
        self.epochs[transaction.producer_id] = transaction.epoch
        if transaction.state.is_prepared:
            assert self.decided is None
            self.decided = transaction.state

    def take_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def is_current(self, instance: Instance) -> bool:
        return not instance.is_replaced

    def tell(self, instance: Instance, identity: Identity) -> None:
        assert identity.epoch <= LAST_EPOCH, "the last one is kept for markers"
        for other in self.instances:
            assert other is instance or other.identity != identity, f"{identity} has two owners"
        instance.identity = identity

    # -- requests

    @initialize(epoch=st.sampled_from([0, 3, LAST_EPOCH - 2, LAST_EPOCH - 1, LAST_EPOCH]))
    def begin(self, epoch: int) -> None:
        """Some lives begin shortly before the epochs are used up."""
        self.append(Transaction(ID, self.take_id(), epoch, 1000, S.EMPTY, updated_ms=self.now_ms))

    def init(self, instance: Instance, claimed: Identity, *, is_answer_lost: bool) -> None:
        known = self.known
        if known is None:
            after = Transaction(ID, self.take_id(), 0, 1000, S.EMPTY, updated_ms=self.now_ms)
            self.append(after)
        elif known.state == S.ONGOING:
            check_raise(known, claimed)
            self.append(ended_by_coordinator(known, self.now_ms, timed_out=False, raised_by=claimed))
            raise StillEnding(ID)
        else:
            after = initialised(known, claimed, 1000, self.take_id() if needs_new_id(known) else None, self.now_ms)
            if after is not known:
                self.append(after)
        if claimed == NOBODY:
            for other in self.instances:
                other.is_replaced = other is not instance
        if not is_answer_lost:
            self.tell(instance, Identity(after.producer_id, after.epoch))

    @rule(is_answer_lost=st.booleans())
    def a_new_instance_starts(self, is_answer_lost: bool) -> None:
        instance = Instance(len(self.instances))
        self.instances.append(instance)
        try:
            self.init(instance, NOBODY, is_answer_lost=is_answer_lost)
        except StillEnding:
            pass
        if instance.identity == NOBODY:
            self.instances.remove(instance)

    @precondition(lambda self: self.instances)
    @rule(data=st.data(), is_answer_lost=st.booleans())
    def an_instance_raises_its_epoch(self, data: st.DataObject, is_answer_lost: bool) -> None:
        instance = data.draw(st.sampled_from(self.instances))
        was_expired = self.known is None
        try:
            self.init(instance, instance.identity, is_answer_lost=is_answer_lost)
        except Refused as refusal:
            check_refusal(refusal)
            return
        if was_expired:
            # An id that has expired belongs to whoever comes first.
            for other in self.instances:
                other.is_replaced = other is not instance
            return
        assert self.is_current(instance), "a replaced instance was let in again"

    @precondition(lambda self: self.instances)
    @rule(data=st.data(), partition=st.integers(0, 2), v2=st.booleans())
    def an_instance_adds_a_partition(self, data: st.DataObject, partition: int, v2: bool) -> None:
        instance = data.draw(st.sampled_from(self.instances))
        place = ("out", partition)
        try:
            after = with_partitions(self.known, ID, instance.identity, [place], 2 if v2 else 0, self.now_ms)
        except Refused as refusal:
            check_refusal(refusal)
            return
        assert self.is_current(instance)
        if after is not None:
            self.append(after)
        known = self.known
        assert known is not None
        assert known.state == S.ONGOING
        assert place in known.partitions

    @precondition(lambda self: self.instances)
    @rule(data=st.data(), is_commit=st.booleans(), v2=st.booleans(), is_answer_lost=st.booleans())
    def an_instance_ends(self, data: st.DataObject, is_commit: bool, v2: bool, is_answer_lost: bool) -> None:
        instance = data.draw(st.sampled_from(self.instances))
        before = self.known
        new_id = self.take_id() if v2 and before is not None and needs_new_id(before) else None
        try:
            told, prepared = ended_by_client(before, ID, instance.identity, is_commit, v2, new_id, self.now_ms)
        except Refused as refusal:
            check_refusal(refusal)
            return
        assert before is not None
        if prepared is not None:
            assert self.is_current(instance), "a replaced instance ended a transaction"
            self.append(prepared)
        elif not has_timed_out(before, instance.identity):
            done = S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT
            assert before.state == done, "a retry is told of the end that was decided"
        if v2:
            assert told != instance.identity, "the second generation goes on with another epoch"
            if not is_answer_lost and self.is_current(instance):
                self.tell(instance, told)
        else:
            assert told == instance.identity

    # -- what happens by itself

    @precondition(lambda self: self.known is not None and self.known.state.is_prepared)
    @rule()
    def the_last_marker_is_written(self) -> None:
        prepared = self.known
        assert prepared is not None
        assert prepared.state == self.decided
        done = completed(prepared, self.now_ms)
        assert (done.state == S.COMPLETE_COMMIT) == (self.decided == S.PREPARE_COMMIT)
        self.decided = None
        self.append(done)

    @precondition(lambda self: self.known is not None and self.known.state == S.ONGOING)
    @rule()
    def time_runs_out(self) -> None:
        known = self.known
        assert known is not None
        self.now_ms = known.started_ms + known.timeout_ms
        assert known.left_ms(self.now_ms) == 0
        self.append(ended_by_coordinator(known, self.now_ms, timed_out=True))

    @precondition(lambda self: self.known is not None)
    @rule()
    def a_week_passes(self) -> None:
        known = self.known
        assert known is not None
        self.now_ms += 7 * 86_400_000
        if is_expired(known, self.now_ms, 7 * 86_400_000):
            self.append(None)
        elif known.state == S.ONGOING:
            self.append(ended_by_coordinator(known, self.now_ms, timed_out=True))

    # -- what always holds

    @invariant()
    def a_decision_stands_until_it_is_carried_out(self) -> None:
        if self.decided is not None:
            assert self.known is not None
            assert self.known.state == self.decided

    @invariant()
    def at_most_one_instance_owns_the_id(self) -> None:
        known = self.known
        if known is not None:
            owners = [i for i in self.instances if i.identity == (known.producer_id, known.epoch)]
            assert len(owners) <= 1
            assert all(self.is_current(owner) for owner in owners)

    @invariant()
    def replay_equals_live(self) -> None:
        replayed = Transactions()
        for number, (key, value) in enumerate(self.records, 1):
            replayed.replay(Record(number, self.now_ms, key, value, ()), -1)
        assert replayed.by_id == self.state.by_id


TestTransactionalId = TransactionalId.TestCase
TestTransactionalId.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
