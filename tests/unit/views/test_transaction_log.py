"""The history of transactional ids, from the records of their coordinators."""

from __future__ import annotations

import struct
from typing import Any

from semel.records.read import Record
from semel.views.transaction_log import TransactionHistory
from semel.wire.codec import encode
from semel.wire.spec.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions

ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = 1, 2, 3, 4, 5


def changed(name: str, status: int, at_ms: int, *, began_ms: int = 1000, partitions: int = 2) -> Record:
    key = struct.pack(">h", 0) + encode(TransactionLogKey(transactional_id=name), 0)
    value = TransactionLogValue(
        producer_id=5,
        producer_epoch=1,
        transaction_status=status,
        transaction_partitions=[TransactionPartitions(topic="payments", partition_ids=list(range(partitions)))],
        transaction_last_update_timestamp_ms=at_ms,
        transaction_start_timestamp_ms=began_ms,
    )
    return Record(0, at_ms, key, struct.pack(">h", 1) + encode(value, 1), ())


def history(*records: Record) -> list[dict[str, Any]]:
    found = TransactionHistory()
    for record in records:
        found.take(record)
    return found.documents("till")


def test_a_transaction_begins_is_decided_and_completes() -> None:
    assert history(
        changed("till", ONGOING, 1000, partitions=1),
        changed("till", ONGOING, 1010),
        changed("till", PREPARE_COMMIT, 1500),
        changed("till", COMPLETE_COMMIT, 1600, partitions=0),
    ) == [
        {
            "producer_id": 5,
            "producer_epoch": 1,
            "began_ms": 1000,
            "prepared_ms": 1500,
            "completed_ms": 1600,
            "end": "commit",
            "partitions": ["payments/0", "payments/1"],
            "partition_count": 2,
        }
    ]


def test_one_that_is_open_has_no_end() -> None:
    (one,) = history(changed("till", ONGOING, 1000))
    assert (one["end"], one["prepared_ms"], one["completed_ms"]) == (None, None, None)


def test_the_next_one_is_another_one() -> None:
    found = history(
        changed("till", ONGOING, 1000),
        changed("till", PREPARE_ABORT, 1100),
        changed("till", COMPLETE_ABORT, 1200),
        changed("till", ONGOING, 2000, began_ms=2000),
    )
    assert [(one["began_ms"], one["end"]) for one in found] == [(1000, "abort"), (2000, None)]


def test_what_compaction_has_left_is_enough_for_a_bar() -> None:
    (one,) = history(changed("till", COMPLETE_COMMIT, 1600, partitions=0))
    assert (one["began_ms"], one["completed_ms"], one["end"]) == (1000, 1600, "commit")


def test_what_ended_before_the_window_is_left_out() -> None:
    found = TransactionHistory()
    found.take(changed("till", COMPLETE_COMMIT, 1600))
    found.take(changed("other", ONGOING, 1000))
    assert found.drawn("till", 1601, 9000, 100) == ([], 0)
    assert found.drawn("other", 1601, 9000, 100)[1] == 1
    assert found.recent_ids() == ["other", "till"]


def test_where_many_begin_at_one_place_what_matters_most_is_drawn() -> None:
    found = TransactionHistory()
    for number in range(200):
        began_ms = 1000 + number
        found.take(
            changed("till", COMPLETE_ABORT if number == 77 else COMPLETE_COMMIT, began_ms + 5, began_ms=began_ms)
        )
    found.take(changed("till", ONGOING, 1200, began_ms=1200))
    drawn, count = found.drawn("till", 1000, 2000, 10)
    assert count == 201
    assert [one["end"] for one in drawn] == ["abort", "commit", None]


def test_records_that_are_not_understood_change_nothing() -> None:
    found = TransactionHistory()
    for record in (
        Record(0, 0, None, b"x", ()),
        Record(0, 0, b"\0", b"x", ()),
        Record(0, 0, b"\0\0\0\4till", b"\0\7\xff", ()),
        Record(0, 0, b"\0\0\0\4till", None, ()),
    ):
        found.take(record)
    assert found.recent_ids() == []
