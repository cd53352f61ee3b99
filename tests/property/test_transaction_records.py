"""What a transaction's record says is what the codec of its description says, and what is known when it was written."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import NO_EPOCH, NO_PRODUCER_ID, Transaction, Transactions, entry
from semel.records.read import Record
from semel.wire.codec import encode
from semel.wire.spec.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions

PRODUCER_ID = st.integers(-(2**63), 2**63 - 1)
EPOCH = st.integers(-(2**15), 2**15 - 1)
TIME_MS = st.integers(-(2**63), 2**63 - 1)
TOPIC = st.text(max_size=20) | st.integers(120, 300).map("t".__mul__)
PARTITION = st.tuples(TOPIC, st.integers(0, 2**31 - 1))
PARTITIONS = st.frozensets(PARTITION, max_size=1) | st.frozensets(PARTITION, max_size=200)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(TransactionState))
    return Transaction(
        draw(st.text(max_size=20)),
        draw(PRODUCER_ID),
        draw(EPOCH),
        draw(st.integers(-(2**31), 2**31 - 1)),
        state,
        frozenset() if state == TransactionState.EMPTY else draw(PARTITIONS),
        draw(TIME_MS),
        draw(TIME_MS),
        draw(st.just(NO_PRODUCER_ID) | PRODUCER_ID),
        draw(st.just(NO_PRODUCER_ID) | PRODUCER_ID),
        draw(st.sampled_from([0, 1, 2])),
        draw(st.just(NO_EPOCH) | EPOCH),
        draw(st.just(NO_EPOCH) | EPOCH),
    )


def described(transaction: Transaction) -> TransactionLogValue:
    topics = sorted({topic for topic, _ in transaction.partitions})
    partitions = [
        TransactionPartitions(topic=topic, partition_ids=sorted(i for of, i in transaction.partitions if of == topic))
        for topic in topics
    ]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state == TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
        timed_out_epoch=transaction.timed_out_epoch,
        raised_from_epoch=transaction.raised_from_epoch,
    )


@given(transactions())
@settings(max_examples=500, deadline=None)
def test_a_transaction_is_written_as_the_codec_writes_it(transaction: Transaction) -> None:
    key, value = entry(transaction)
    assert key == bytes(2) + encode(TransactionLogKey(transactional_id=transaction.transactional_id), 0)
    assert value == b"\0\1" + encode(described(transaction), 1)


@given(transactions(), st.integers(0, 2**62))
@settings(max_examples=500, deadline=None)
def test_what_its_writer_takes_is_what_a_replay_of_its_bytes_gives(transaction: Transaction, offset: int) -> None:
    taken, replayed = Transactions(), Transactions()
    taken.take(transaction, offset)
    key, value = entry(transaction)
    replayed.replay(Record(offset, 0, key, value, ()), -1)
    assert (replayed.by_id, replayed.offsets) == (taken.by_id, taken.offsets)
