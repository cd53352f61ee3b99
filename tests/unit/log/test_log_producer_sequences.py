"""The sequence rules of idempotent producers: what is next, what is a duplicate, what is a gap."""

from __future__ import annotations

import pytest
from log_samples import NOW_MS, code_of, header_of

from semel.log.errors import Refused
from semel.log.producers import Producers
from semel.records.batch import BatchHeader
from semel.wire.errors import ErrorCode

PRODUCER = 7
LAST_SEQUENCE = 2**31 - 1


class Stand:
    """Producers with a log end beside them."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end_offset = 0

    def append(self, header: BatchHeader) -> int:
        """The first offset of the batch, now or when it first came."""
        draft = self.producers.check(header, self.end_offset, NOW_MS)
        if draft.duplicate_of is not None:
            return draft.duplicate_of.first_offset
        self.producers.apply(draft)
        first, self.end_offset = self.end_offset, self.end_offset + header.last_offset_delta + 1
        return first

    def begin_at(self, sequence: int) -> None:
        """A producer whose next sequence is `sequence`, without writing all that came before."""
        self.append(header_of(PRODUCER, 0))
        row = bytearray(self.producers.rows()[PRODUCER])
        row[10:14] = (sequence - 1).to_bytes(4, "big")
        self.producers.load({PRODUCER: bytes(row)})


@pytest.fixture
def stand() -> Stand:
    return Stand()


def refusal(stand: Stand, header: BatchHeader) -> ErrorCode:
    before = stand.producers.rows()
    with pytest.raises(Refused) as refused:
        stand.append(header)
    assert stand.producers.rows() == before, "a refused batch leaves no trace"
    return code_of(refused)


def test_the_next_sequence_is_accepted(stand: Stand) -> None:
    assert [stand.append(header_of(PRODUCER, n * 3, 3)) for n in range(8)] == [0, 3, 6, 9, 12, 15, 18, 21]


def test_each_of_the_last_five_batches_is_answered_with_its_first_offset(stand: Stand) -> None:
    headers = [header_of(PRODUCER, n * 2, 2) for n in range(9)]
    firsts = [stand.append(header) for header in headers]
    assert [stand.append(header) for header in headers[-5:]] == firsts[-5:]
    assert stand.end_offset == 18, "a duplicate is not written again"


def test_a_batch_behind_the_window_is_a_duplicate_by_its_code(stand: Stand) -> None:
    headers = [header_of(PRODUCER, n * 2, 2) for n in range(9)]
    for header in headers:
        stand.append(header)
    for header in headers[:-5]:
        assert refusal(stand, header) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_sequence_ahead_is_out_of_order(stand: Stand) -> None:
    stand.append(header_of(PRODUCER, 0, 3))
    assert refusal(stand, header_of(PRODUCER, 4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(stand, header_of(PRODUCER, 4 + 2**29)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stand.append(header_of(PRODUCER, 3)) == 3


def test_a_batch_that_holds_old_and_new_records_is_out_of_order(stand: Stand) -> None:
    stand.append(header_of(PRODUCER, 0, 3))
    stand.append(header_of(PRODUCER, 3, 3))
    assert refusal(stand, header_of(PRODUCER, 3, 4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(stand, header_of(PRODUCER, 5, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_old_records_cut_into_other_batches_are_duplicates_without_an_offset(stand: Stand) -> None:
    stand.append(header_of(PRODUCER, 0, 3))
    stand.append(header_of(PRODUCER, 3, 3))
    assert refusal(stand, header_of(PRODUCER, 3, 2)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert refusal(stand, header_of(PRODUCER, 2, 3)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_producer_that_nobody_knows_begins_at_zero(stand: Stand) -> None:
    assert refusal(stand, header_of(PRODUCER, 1)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert len(stand.producers) == 0
    assert stand.append(header_of(PRODUCER, 0)) == 0


def test_an_old_epoch_is_refused_even_with_the_right_sequence(stand: Stand) -> None:
    stand.append(header_of(PRODUCER, 0, epoch=4))
    assert refusal(stand, header_of(PRODUCER, 1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(stand, header_of(PRODUCER, 0, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_begins_at_zero_and_forgets_the_window(stand: Stand) -> None:
    stand.append(header_of(PRODUCER, 0, 2))
    assert refusal(stand, header_of(PRODUCER, 2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stand.append(header_of(PRODUCER, 0, 2, epoch=1)) == 2
    assert stand.append(header_of(PRODUCER, 0, 2, epoch=1)) == 2
    assert len(stand.producers.window(PRODUCER)) == 1


def test_producers_do_not_touch_each_other(stand: Stand) -> None:
    stand.append(header_of(1, 0, 5))
    assert stand.append(header_of(2, 0, 5)) == 5
    assert stand.append(header_of(1, 5)) == 10
    assert stand.append(header_of(1, 0, 5)) == 0


def test_zero_follows_the_last_sequence(stand: Stand) -> None:
    stand.begin_at(LAST_SEQUENCE)
    first = stand.append(header_of(PRODUCER, LAST_SEQUENCE))
    assert refusal(stand, header_of(PRODUCER, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    second = stand.append(header_of(PRODUCER, 0))
    assert stand.append(header_of(PRODUCER, LAST_SEQUENCE)) == first
    assert stand.append(header_of(PRODUCER, 0)) == second
    assert refusal(stand, header_of(PRODUCER, LAST_SEQUENCE - 5)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_may_span_the_wrap(stand: Stand) -> None:
    stand.begin_at(LAST_SEQUENCE - 1)
    first = stand.append(header_of(PRODUCER, LAST_SEQUENCE - 1, 5))
    assert stand.producers.window(PRODUCER)[0][:2] == (LAST_SEQUENCE - 1, 2)
    assert stand.append(header_of(PRODUCER, LAST_SEQUENCE - 1, 5)) == first
    assert refusal(stand, header_of(PRODUCER, LAST_SEQUENCE, 1)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert refusal(stand, header_of(PRODUCER, 4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stand.append(header_of(PRODUCER, 3)) == first + 5


def test_a_draft_that_is_not_applied_changes_nothing(stand: Stand) -> None:
    stand.append(header_of(PRODUCER, 0))
    before = stand.producers.rows()
    stand.producers.check(header_of(PRODUCER, 1), 1, NOW_MS)
    stand.producers.check(header_of(8, 0, transactional=True), 1, NOW_MS)
    assert stand.producers.rows() == before
    assert stand.producers.oldest_open_offset() is None


def test_a_silent_producer_expires_and_is_unknown_then(stand: Stand) -> None:
    stand.append(header_of(1, 0))
    stand.append(header_of(2, 0, transactional=True))
    assert stand.producers.expire(NOW_MS + 999, 1000) == 0
    assert stand.producers.expire(NOW_MS + 1000, 1000) == 1
    assert stand.producers.entry(2) is not None, "an open transaction does not expire"
    assert refusal(stand, header_of(1, 1)) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_a_refusal_says_who_sent_what_and_what_was_expected(stand: Stand) -> None:
    stand.append(header_of(PRODUCER, 0, 3))
    with pytest.raises(Refused, match="producer 7 sent sequence 9, but 3 comes next"):
        stand.append(header_of(PRODUCER, 9))
