"""Transactions of a producer in one partition: who may write, who may end them, what they hold back."""

from __future__ import annotations

import pytest
from log_samples import NOW_MS, code_of, header_of

from semel.log.errors import Refused
from semel.log.producers import EndedTransaction, Producers
from semel.wire.errors import ErrorCode

PRODUCER = 7


def append(producers: Producers, offset: int, sequence: int, **more: object) -> None:
    draft = producers.check(header_of(PRODUCER, sequence, transactional=True, **more), offset, NOW_MS)  # type: ignore[arg-type]
    producers.apply(draft)


def end(
    producers: Producers,
    offset: int,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    *,
    bumps_epoch: bool = False,
    aborted: bool = False,
) -> EndedTransaction | None:
    draft = producers.check_marker(PRODUCER, epoch, coordinator_epoch, NOW_MS, bumps_epoch=bumps_epoch)
    return producers.apply_marker(draft, offset, aborted)


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    producers = Producers()
    append(producers, 0, 0)
    with pytest.raises(Refused) as refused:
        producers.check(header_of(PRODUCER, 1), 1, NOW_MS)
    assert code_of(refused) is ErrorCode.INVALID_TXN_STATE
    end(producers, 1)
    producers.apply(producers.check(header_of(PRODUCER, 1), 2, NOW_MS))


def test_a_transaction_begins_at_its_first_batch() -> None:
    producers = Producers()
    append(producers, 10, 0)
    append(producers, 11, 1)
    entry = producers.entry(PRODUCER)
    assert entry is not None
    assert entry.transaction_first_offset == 10
    assert end(producers, 12, aborted=True) == EndedTransaction(PRODUCER, 10, 12, True)
    assert producers.entry(PRODUCER).transaction_first_offset == -1  # type: ignore[union-attr]


def test_a_marker_with_the_same_epoch_keeps_the_sequences_and_the_window() -> None:
    producers = Producers()
    append(producers, 0, 0)
    append(producers, 1, 1)
    end(producers, 2)
    assert len(producers.window(PRODUCER)) == 2
    append(producers, 3, 2)


def test_a_sequence_of_an_ended_transaction_is_no_duplicate_in_the_next_one() -> None:
    """As librdkafka sends it: a batch whose answer never came is given up with its transaction, and its sequence goes
    to other records. Told that they are in the log already, it would take them for written."""
    producers = Producers()
    for sequence in range(7):
        append(producers, sequence, sequence)
    end(producers, 7, aborted=True)
    for sequence in (6, 2, 0):
        with pytest.raises(Refused, match="in a transaction that is over; 7 comes next") as refused:
            append(producers, 8, sequence)
        assert code_of(refused) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(producers, 8, 7)
    with pytest.raises(Refused) as refused:
        append(producers, 9, 6)
    assert code_of(refused) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = producers.check(header_of(PRODUCER, 7, transactional=True), 9, NOW_MS)
    assert again.duplicate_of is not None
    assert again.duplicate_of.first_offset == 8


def test_of_an_open_transaction_what_is_older_than_the_window_is_called_a_duplicate() -> None:
    producers = Producers()
    for sequence in range(7):
        append(producers, sequence, sequence)
    with pytest.raises(Refused) as refused:
        append(producers, 7, 0)
    assert code_of(refused) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_marker_that_raises_the_epoch_starts_the_sequences_at_zero() -> None:
    producers = Producers()
    append(producers, 0, 0)
    append(producers, 1, 1)
    end(producers, 2, epoch=1, bumps_epoch=True)
    assert producers.window(PRODUCER) == []
    with pytest.raises(Refused) as refused:
        append(producers, 3, 2, epoch=1)
    assert code_of(refused) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(Refused) as refused:
        append(producers, 3, 2, epoch=0)
    assert code_of(refused) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(producers, 3, 0, epoch=1)


def test_a_marker_of_an_older_epoch_is_fenced() -> None:
    producers = Producers()
    append(producers, 0, 0, epoch=5)
    with pytest.raises(Refused) as refused:
        end(producers, 1, epoch=4)
    assert code_of(refused) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.oldest_open_offset() == 0


def test_a_marker_of_an_older_coordinator_is_fenced() -> None:
    producers = Producers()
    append(producers, 0, 0)
    end(producers, 1, coordinator_epoch=3)
    append(producers, 2, 1)
    with pytest.raises(Refused) as refused:
        end(producers, 3, coordinator_epoch=2)
    assert code_of(refused) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert producers.oldest_open_offset() == 2
    end(producers, 3, coordinator_epoch=3)


def test_a_marker_that_should_raise_the_epoch_cannot_end_a_transaction_with_the_stored_one() -> None:
    producers = Producers()
    append(producers, 0, 0, epoch=2)
    with pytest.raises(Refused) as refused:
        end(producers, 1, epoch=2, bumps_epoch=True)
    assert code_of(refused) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(producers, 1, epoch=3, bumps_epoch=True) is not None
    assert end(producers, 2, epoch=3, bumps_epoch=True) is None, "again, with nothing open: a retry"


def test_a_marker_of_an_unknown_producer_is_remembered_without_a_transaction() -> None:
    producers = Producers()
    assert end(producers, 0, epoch=3, coordinator_epoch=2) is None
    entry = producers.entry(PRODUCER)
    assert entry is not None
    assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence) == (3, 2, -1)
    with pytest.raises(Refused) as refused:
        append(producers, 1, 0, epoch=2)
    assert code_of(refused) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_oldest_open_transaction_holds_the_stable_offset_back() -> None:
    producers = Producers()
    for producer, offset in ((1, 10), (2, 11), (3, 12)):
        producers.apply(producers.check(header_of(producer, 0, transactional=True), offset, NOW_MS))
    assert producers.first_unstable_offset(100) == 10
    producers.apply_marker(producers.check_marker(1, 0, 0, NOW_MS), 13, False)
    assert producers.first_unstable_offset(100) == 11
    producers.apply_marker(producers.check_marker(3, 0, 0, NOW_MS), 14, False)
    assert producers.first_unstable_offset(100) == 11
    producers.apply_marker(producers.check_marker(2, 0, 0, NOW_MS), 15, False)
    assert producers.first_unstable_offset(100) is None


def test_an_ended_transaction_holds_the_stable_offset_back_until_its_marker_is_committed() -> None:
    producers = Producers()
    append(producers, 10, 0)
    end(producers, 12)
    assert producers.first_unstable_offset(12) == 10, "the marker stands at 12: below 13 it is not committed"
    assert producers.first_unstable_offset(13) is None


def test_open_transactions_are_known_again_after_loading_rows() -> None:
    producers = Producers()
    for producer, offset in ((5, 30), (3, 20), (4, 25)):
        producers.apply(producers.check(header_of(producer, 0, transactional=True), offset, NOW_MS))
    loaded = Producers()
    loaded.load(producers.rows())
    assert loaded.oldest_open_offset() == 20
    loaded.apply_marker(loaded.check_marker(3, 0, 0, NOW_MS), 40, False)
    assert loaded.oldest_open_offset() == 25


def test_a_coordinators_batch_has_no_sequence_and_is_judged_by_its_epoch_alone() -> None:
    producers = Producers()
    append(producers, 0, -1, epoch=3)
    append(producers, 1, -1, epoch=3)
    assert producers.window(PRODUCER) == []
    assert producers.oldest_open_offset() == 0
    with pytest.raises(Refused) as refused:
        append(producers, 2, -1, epoch=2)
    assert code_of(refused) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(producers, 2, epoch=3) == EndedTransaction(PRODUCER, 0, 2, False)
    append(producers, 3, -1, epoch=4)
    assert producers.oldest_open_offset() == 3


def test_of_two_ended_transactions_the_one_whose_marker_is_committed_holds_nothing_back() -> None:
    producers = Producers()
    append(producers, 10, 0)
    end(producers, 11)
    append(producers, 12, 1)
    end(producers, 13)
    assert producers.first_unstable_offset(11) == 10
    assert producers.first_unstable_offset(13) == 12, "the later marker is not committed; the earlier one is"


def test_a_control_batch_that_compaction_has_emptied_is_replayed_without_effect() -> None:
    producers = Producers()
    append(producers, 0, 0)
    before = producers.rows()
    emptied = header_of(PRODUCER, -1)._replace(attributes=0x30, base_offset=1)
    assert emptied.is_control
    assert producers.replay(emptied, None, NOW_MS) is None
    assert producers.rows() == before
    assert producers.oldest_open_offset() == 0


def test_what_was_known_before_the_rows_were_loaded_is_forgotten() -> None:
    producers = Producers()
    append(producers, 0, 0)
    end(producers, 1)
    append(producers, 2, 1)
    producers.load({})
    assert len(producers) == 0
    assert producers.first_unstable_offset(0) is None
