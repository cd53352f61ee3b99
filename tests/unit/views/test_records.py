"""Pages of records, and the fate of each."""

from __future__ import annotations

import pytest

from semel.client.metadata import TopicPartition
from semel.views import records as records_module
from semel.views.records import (
    Bounds,
    Page,
    SeenRecord,
    Tail,
    cursor_text,
    place_of_key,
    read_backward,
    read_forward,
    record_document,
    value_document,
)
from unit.views.log_of_one_partition import PLACE, OnePartition


def everything(one: SeenRecord) -> bool:
    return True


async def whole(log: OnePartition, *, with_markers: bool = False) -> list[SeenRecord]:
    page = await read_forward(log.admin, {PLACE: 0}, everything, Bounds(1000), with_markers=with_markers)
    assert page.is_exhausted
    return page.records


def fates(found: list[SeenRecord]) -> dict[int, str]:
    return {one.record.offset: one.fate for one in found}


async def test_each_record_tells_how_its_transaction_has_ended() -> None:
    log = OnePartition()
    log.write(b"0")
    log.write(b"1", b"2", producer_id=7)
    log.write(b"3", producer_id=8)
    log.finish(7, is_commit=True)
    log.finish(8, is_commit=False)
    log.write(b"6", producer_id=9)
    found = await whole(log)
    assert fates(found) == {0: "plain", 1: "committed", 2: "committed", 3: "aborted", 6: "open"}
    assert [one.is_visible for one in found] == [True, True, True, True, False]


async def test_what_was_committed_behind_an_open_transaction_is_committed_and_not_visible() -> None:
    log = OnePartition()
    log.write(b"0", producer_id=7)
    log.write(b"1", producer_id=8)
    log.finish(8, is_commit=True)
    log.write(b"3", producer_id=9)
    log.finish(9, is_commit=False)
    log.write(b"5")
    found = await whole(log)
    assert fates(found) == {0: "open", 1: "committed", 3: "aborted", 5: "plain"}
    assert not any(one.is_visible for one in found)


async def test_a_producer_can_have_an_ended_and_an_open_transaction_behind_another_one() -> None:
    log = OnePartition()
    log.write(b"0", producer_id=7)
    log.write(b"1", producer_id=8)
    log.finish(8, is_commit=True)
    log.write(b"3", producer_id=8)
    assert fates(await whole(log)) == {0: "open", 1: "committed", 3: "open"}


async def test_the_marker_is_looked_for_beyond_the_piece_that_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "PIECE_BYTES", 200)
    log = OnePartition()
    log.write(b"0", producer_id=7)
    log.write(b"1", producer_id=8)
    for _ in range(20):
        log.write(b"between" * 10)
    log.finish(8, is_commit=False)
    assert fates(await whole(log))[1] == "aborted"
    monkeypatch.setattr(records_module, "_MARKERS_WITHIN_BYTES", 100)
    assert fates(await whole(log))[1] == "ended"


async def test_markers_are_shown_where_they_are_asked_for() -> None:
    log = OnePartition()
    log.write(b"0", producer_id=7)
    log.finish(7, is_commit=True)
    found = await whole(log, with_markers=True)
    assert [one.marker for one in found] == [None, "commit"]
    assert record_document(found[1])["value"] is None


def written(count: int) -> OnePartition:
    log = OnePartition()
    for number in range(count):
        log.write(f"{number}".encode())
    return log


async def test_pages_backward_have_every_record_once() -> None:
    log, seen, at = written(1130), [], {PLACE: 1130}
    while True:
        page = await read_backward(log.admin, at, {PLACE: 0}, everything, Bounds(100))
        seen += [one.record.offset for one in page.records]
        at = page.older
        if page.is_exhausted:
            break
    assert seen == list(range(1129, -1, -1))


async def test_pages_forward_have_every_record_once() -> None:
    log, seen, at = written(530), [], {PLACE: 0}
    while True:
        page = await read_forward(log.admin, at, everything, Bounds(100))
        seen += [one.record.offset for one in page.records]
        at = page.newer
        if page.is_exhausted:
            break
    assert seen == list(range(530))


async def test_a_search_ends_at_its_bounds_and_goes_on_where_it_ended() -> None:
    log = written(3000)

    def is_first(one: SeenRecord) -> bool:
        return one.record.offset == 3

    bounds = Bounds(10, max_bytes=20_000)
    page = await read_backward(log.admin, {PLACE: 3000}, {PLACE: 0}, is_first, bounds)
    assert not page.records
    assert not page.is_exhausted
    assert page.scanned_bytes < 80_000
    pages = 1
    while not page.records:
        page = await read_backward(log.admin, page.older, {PLACE: 0}, is_first, bounds)
        pages += 1
    assert [one.record.offset for one in page.records] == [3]
    assert pages > 3


async def test_the_tail_knows_nothing_as_committed_before_its_marker_has_come() -> None:
    log = OnePartition()
    log.write(b"0")
    tail = Tail(log.admin, {PLACE: 0})
    log.write(b"1", producer_id=7)
    assert fates(await tail.next(wait_ms=0)) == {0: "plain", 1: "open"}
    log.finish(7, is_commit=True)
    found = await tail.next(wait_ms=0)
    assert [(one.record.offset, one.marker, one.producer_id) for one in found] == [(2, "commit", 7)]
    assert await tail.next(wait_ms=0) == []


def test_values_are_text_where_they_are_and_bytes_where_they_are_not() -> None:
    assert value_document(None) is None
    assert value_document(b"") == {"size": 0, "is_cut": False, "text": ""}
    assert value_document(b"\xff\x00") == {"size": 2, "is_cut": False, "hex": "ff00"}
    assert value_document("züg".encode(), 2) == {"size": 4, "is_cut": True, "text": "z"}


def test_a_key_has_its_place() -> None:
    places = [TopicPartition("t", number) for number in range(3)]
    # As Kafka's own clients place it: murmur2 of b"42".
    assert place_of_key(places, b"42") in places
    assert len({place_of_key(places, f"{number}".encode()) for number in range(50)}) == 3
    assert cursor_text({places[1]: 8, places[0]: 7}) == "0:7,1:8"


async def test_an_empty_partition_is_an_empty_page() -> None:
    log = OnePartition()
    page: Page = await read_backward(log.admin, {PLACE: 0}, {PLACE: 0}, everything, Bounds())
    assert page.records == []
    assert page.is_exhausted
