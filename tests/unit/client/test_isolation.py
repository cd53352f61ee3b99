"""Which batches a reader of committed records sees: the articles' algorithm, alone, and against a model that knows."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.client.consumer.fetched import Fetched
from semel.client.consumer.isolation import AbortedTransactions, is_abort_marker
from semel.client.metadata import TopicPartition
from semel.records import kernel
from semel.records.batch import read_header, set_base_offset, set_crc
from semel.records.build import build_batch
from semel.records.control import ControlType, control_batch

PARTITION = TopicPartition("t", 0)


def data(producer_id: int, *values: bytes, transactional: bool = True) -> bytearray:
    return build_batch(
        list(values),
        base_timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=transactional and producer_id >= 0,
    )


def marker(producer_id: int, kind: ControlType) -> bytearray:
    return control_batch(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)


def answer(*batches: bytearray, first_offset: int = 0) -> bytes:
    """The batches as a log holds them."""
    offset = first_offset
    for batch in batches:
        set_base_offset(batch, offset)
        offset = read_header(batch).next_offset
    return b"".join(batches)


def seen(records: bytes, aborted: list[tuple[int, int]] | None, first_offset: int = 0) -> tuple[list[int], int]:
    """The base offsets of the batches that are shown, and where reading goes on."""
    fetched = Fetched(
        PARTITION,
        memoryview(records),
        first_offset,
        aborted=None if aborted is None else AbortedTransactions(aborted),
        checks_crcs=True,
    )
    found = []
    fetched.step()
    while fetched.current is not None:
        found.append(fetched.current.header.base_offset)
        fetched.step()
    assert fetched.problem is None
    return found, fetched.next_offset


def test_an_aborted_transaction_is_not_shown_and_the_position_passes_its_marker() -> None:
    log = answer(data(7, b"a"), data(7, b"b"), marker(7, ControlType.ABORT))
    assert seen(log, [(7, 0)]) == ([], 3)


def test_the_next_transaction_of_the_same_producer_is_shown_again() -> None:
    log = answer(
        data(7, b"a"), marker(7, ControlType.ABORT), data(7, b"b"), marker(7, ControlType.COMMIT), data(7, b"c")
    )
    assert seen(log, [(7, 0)]) == ([2, 4], 5)


def test_other_producers_go_on_between() -> None:
    log = answer(data(7, b"a"), data(8, b"b"), data(-1, b"c"), data(7, b"d"), marker(7, ControlType.ABORT))
    assert seen(log, [(7, 0)]) == ([1, 2], 5)


def test_records_of_the_same_producer_outside_of_transactions_are_shown() -> None:
    log = answer(data(7, b"a"), data(7, b"b", transactional=False), marker(7, ControlType.ABORT))
    assert seen(log, [(7, 0)]) == ([1], 3)


def test_a_transaction_counts_from_its_first_offset_on() -> None:
    """The list of an answer may name transactions that begin in the middle of it."""
    log = answer(data(7, b"a"), marker(7, ControlType.COMMIT), data(7, b"b"), marker(7, ControlType.ABORT))
    assert seen(log, [(7, 2)]) == ([0], 4)


def test_a_transaction_that_began_before_the_answer_is_known_by_the_list() -> None:
    log = answer(data(7, b"x"), marker(7, ControlType.ABORT), first_offset=100)
    assert seen(log, [(7, 3)], 100) == ([], 102)


def test_the_list_need_not_be_in_order() -> None:
    log = answer(data(7, b"a"), data(8, b"b"), marker(8, ControlType.ABORT), marker(7, ControlType.ABORT))
    assert seen(log, [(8, 1), (7, 0)]) == ([], 4)


def test_a_reader_of_everything_sees_aborted_records_but_never_a_marker() -> None:
    log = answer(data(7, b"a"), marker(7, ControlType.ABORT), data(7, b"b"), marker(7, ControlType.COMMIT))
    assert seen(log, None) == ([0, 2], 4)


def test_a_marker_of_a_kind_nobody_knows_is_stepped_over() -> None:
    unknown = build_batch(
        [b"\0\0\0\0\0\0"],
        keys=[b"\0\0\0\x63"],
        base_timestamp_ms=1,
        producer_id=7,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    assert not is_abort_marker(unknown, read_header(unknown))
    assert seen(answer(data(7, b"a"), unknown, data(7, b"b"), marker(7, ControlType.ABORT)), [(7, 0)]) == ([], 4)


def test_a_marker_that_compaction_has_emptied_is_stepped_over() -> None:
    empty = marker(7, ControlType.COMMIT)[:61]
    empty[8:12] = (49).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    set_crc(empty)
    assert seen(answer(data(8, b"a"), empty, data(8, b"b")), [(7, 0)]) == ([0, 2], 3)


def test_nothing_of_an_aborted_batch_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its header is looked at: a marker's record is the only one that is read."""
    opened = []
    original = kernel.read_records

    def noting(*arguments: object) -> object:
        opened.append(arguments)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel, "read_records", noting)
    log = answer(data(7, b"a" * 100), data(7, b"b" * 100), marker(7, ControlType.ABORT))
    assert seen(log, [(7, 0)]) == ([], 3)
    assert len(opened) == 1


class Step(NamedTuple):
    producer: int
    kind: str


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["write", "write", "plain", "commit", "abort"])), max_size=25
    ),
    st.integers(0, 30),
)
def test_what_is_shown_is_what_a_reader_who_knows_the_outcomes_would_show(
    steps: list[tuple[int, str]], start: int
) -> None:
    batches: list[bytearray] = []
    fates: dict[int, str] = {}  # offset of a batch -> what became of its transaction
    begun: dict[int, list[int]] = {}
    aborted: list[tuple[int, int, int]] = []  # producer, first offset, offset of the marker
    for producer, kind in steps:
        offset = len(batches)
        if kind in ("write", "plain"):
            batches.append(data(producer if kind == "write" else -1, b"v"))
            fates[offset] = "shown"
            if kind == "write":
                begun.setdefault(producer, []).append(offset)
        elif producer in begun:
            batches.append(marker(producer, ControlType.ABORT if kind == "abort" else ControlType.COMMIT))
            written = begun.pop(producer)
            if kind == "abort":
                aborted.append((producer, written[0], offset))
                fates.update(dict.fromkeys(written, "hidden"))
    # A broker shows nothing past the first record of a transaction that is still open.
    end = min((written[0] for written in begun.values()), default=len(batches))
    start = min(start, end)
    log = answer(*batches)
    sizes = [len(batch) for batch in batches]
    sent = log[sum(sizes[:start]) : sum(sizes[:end])]
    told = [(producer, first) for producer, first, marked in aborted if marked >= start and first < end]
    expected = [offset for offset, fate in sorted(fates.items()) if start <= offset < end and fate == "shown"]
    assert seen(sent, told, start) == (expected, end)
