"""The records of `__transaction_state`: what is written is what is read again, and Kafka's own can be read too."""

from __future__ import annotations

import pytest
from txn_samples import ID, NOW_MS, PRODUCER, S, in_state

from semel.coordinator.shard import Entry
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import Transaction, Transactions, entry, tombstone
from semel.records.read import Record


def replayed(*entries: Entry) -> dict[str, Transaction]:
    state = Transactions()
    for offset, (key, value) in enumerate(entries):
        state.replay(Record(offset, NOW_MS, key, value, ()), -1)
    return state.by_id


@pytest.mark.parametrize("state", TransactionState)
def test_a_transaction_is_read_back_as_it_was_written(state: TransactionState) -> None:
    transaction = in_state(
        state, previous_producer_id=3, next_producer_id=9, client_version=2, timed_out_epoch=4, raised_from_epoch=2
    )
    assert replayed(entry(transaction)) == {ID: transaction}


def test_partitions_of_several_topics_are_read_back() -> None:
    transaction = in_state(S.ONGOING, partitions=frozenset({("b", 3), ("a", 1), ("b", 0), ("__consumer_offsets", 49)}))
    assert replayed(entry(transaction)) == {ID: transaction}


def test_the_newest_record_counts_and_a_tombstone_takes_the_id_away() -> None:
    older, newer = in_state(S.ONGOING), in_state(S.PREPARE_COMMIT)
    assert replayed(entry(older), entry(newer)) == {ID: newer}
    assert replayed(entry(older), tombstone(ID)) == {}
    assert replayed(tombstone(ID)) == {}


def test_a_record_of_kafkas_first_version_is_understood() -> None:
    key = bytes.fromhex("0000") + len(ID).to_bytes(2, "big") + ID.encode()
    value = (
        bytes.fromhex("0000")
        + PRODUCER.to_bytes(8, "big")
        + (5).to_bytes(2, "big")
        + (60_000).to_bytes(4, "big")
        + bytes([S.ONGOING])
        + (1).to_bytes(4, "big")
        + (3).to_bytes(2, "big")
        + b"out"
        + (1).to_bytes(4, "big")
        + (0).to_bytes(4, "big")
        + (NOW_MS - 50).to_bytes(8, "big")
        + (NOW_MS - 100).to_bytes(8, "big")
    )
    assert replayed(Entry(key, value)) == {ID: in_state(S.ONGOING)}


def test_a_key_of_an_unknown_kind_is_passed_over() -> None:
    assert replayed(Entry(bytes.fromhex("0001") + b"whatever", b"value")) == {}
