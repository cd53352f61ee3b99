"""Batches in memory: what goes into one, what memory is counted, who waits for room and how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from semel.client.errors import BufferFull, Closed, RecordTooLarge, TransactionFailed
from semel.client.producer.accumulator import Accumulator
from semel.client.producer.batch import RECORD_OVERHEAD_BYTES, ProducerBatch
from semel.client.producer.lane import Lane
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import load
from semel.records import kernel
from semel.records.batch import HEADER_BYTES
from semel.sim.loop import SimLoop, run


def accumulator(**settings: Any) -> Accumulator:
    return Accumulator(load(ProducerSettings, settings))


def add(room: Accumulator, lane: Lane, value: bytes) -> ProducerBatch:
    """As the producer does it, when there is room."""
    size = room.record_bytes(None, value, None)
    assert room.take_room(size)
    batch = room.open_batch(lane, size, asyncio.get_running_loop())
    batch.append(None, value, 0, None, size)
    return batch


def in_virtual_time(test: Any) -> Any:
    def wrapped() -> None:
        run(test(), loop=SimLoop(end_s=10_000))

    wrapped.__name__ = test.__name__
    return wrapped


# -- batches


@in_virtual_time
async def test_records_share_a_batch_until_it_is_full() -> None:
    room = accumulator(batch_size=HEADER_BYTES + 2 * (RECORD_OVERHEAD_BYTES + 100))
    lane = room.lane("t", 0)
    first = add(room, lane, b"x" * 100)
    assert add(room, lane, b"x" * 100) is first
    assert not first.is_full
    second = add(room, lane, b"x")
    assert second is not first
    assert first.is_full
    assert list(lane.waiting) == [first, second]
    assert (first.count, second.count) == (2, 1)


@in_virtual_time
async def test_a_record_larger_than_a_batch_gets_one_of_its_own() -> None:
    room = accumulator(batch_size=100)
    lane = room.lane("t", 0)
    large, next_one = add(room, lane, b"x" * 1000), add(room, lane, b"x")
    assert large is not next_one
    assert large.count == 1


@in_virtual_time
async def test_nothing_is_added_to_a_batch_that_was_taken_or_has_failed() -> None:
    room = accumulator()
    lane = room.lane("t", 0)
    sent = add(room, lane, b"1")
    lane.take(named=False)
    sent.seal(transactional=False, codec=0, level=None)
    waiting = add(room, lane, b"2")
    assert waiting is not sent
    room.fail_waiting(TransactionFailed("aborted"))
    assert waiting.done
    fresh = add(room, lane, b"3")
    assert fresh is not waiting
    assert not fresh.done
    assert (sent.count, waiting.count, fresh.count) == (1, 1, 1)


@in_virtual_time
async def test_a_batch_that_came_back_takes_no_more_records() -> None:
    room = accumulator()
    lane = room.lane("t", 0)
    sent = add(room, lane, b"1")
    lane.take(named=True)
    sent.seal(transactional=False, codec=0, level=None)
    lane.put_back(sent)
    assert add(room, lane, b"2") is not sent


@in_virtual_time
async def test_a_lane_is_made_once() -> None:
    room = accumulator()
    assert room.lane("t", 0) is room.lane("t", 0)
    assert room.lane("t", 0) is not room.lane("t", 1)


@in_virtual_time
async def test_a_batch_of_columns_ends_the_one_that_was_open() -> None:
    room = accumulator()
    lane = room.lane("t", 0)
    begun = add(room, lane, b"1")
    columns = ProducerBatch.sealed("t", 0, 0.0, bytearray(100), 3)
    room.add_sealed(lane, columns)
    after = add(room, lane, b"2")
    assert begun.is_full
    assert list(lane.waiting) == [begun, columns, after]


# -- sizes


@in_virtual_time
async def test_a_record_that_no_request_could_carry_is_refused() -> None:
    room = accumulator(max_request_size=1000)
    room.record_bytes(None, b"x" * 800, None)
    with pytest.raises(RecordTooLarge, match="1000"):
        room.record_bytes(None, b"x" * 1000, None)
    with pytest.raises(RecordTooLarge):
        room.record_bytes(b"k" * 600, b"x" * 400, None)
    with pytest.raises(RecordTooLarge):
        room.record_bytes(None, b"x" * 400, kernel.encode_headers([("name", b"x" * 600)]))


@in_virtual_time
async def test_a_record_that_the_memory_could_never_hold_is_refused() -> None:
    room = accumulator(buffer_memory=500)
    with pytest.raises(RecordTooLarge):
        room.record_bytes(None, b"x" * 500, None)


@in_virtual_time
async def test_what_a_record_counts_is_at_least_what_it_takes() -> None:
    room = accumulator()
    headers = kernel.encode_headers([("a name", b"content"), ("null", None)])
    batch = ProducerBatch("t", 0, 0.0)
    for size in (0, 1, 100, 10_000):
        for key in (None, b"", b"k" * 60, b"k" * 3000):
            counted = room.record_bytes(key, b"x" * size, headers)
            batch.append(key, b"x" * size, 1_700_000_000_000, headers, counted)
    assert len(batch.seal(transactional=False, codec=0, level=None)) <= batch.size_bytes


# -- memory


@in_virtual_time
async def test_memory_is_taken_with_a_record_and_given_back_with_its_batch() -> None:
    room = accumulator(buffer_memory=10_000)
    lane = room.lane("t", 0)
    batch = add(room, lane, b"x" * 100)
    add(room, lane, b"x" * 100)
    assert room.used_bytes == batch.size_bytes == HEADER_BYTES + 2 * (RECORD_OVERHEAD_BYTES + 100)
    room.finish(batch, None)
    assert room.used_bytes == 0
    assert not room.unfinished


@in_virtual_time
async def test_memory_is_given_back_once() -> None:
    room = accumulator(buffer_memory=10_000)
    batch = add(room, room.lane("t", 0), b"x" * 100)
    room.finish(batch, TransactionFailed("no"))
    room.finish(batch, None)
    assert room.used_bytes == 0
    assert isinstance(batch.error, TransactionFailed)


@in_virtual_time
async def test_the_halves_of_a_batch_give_back_what_the_whole_took() -> None:
    room = accumulator(buffer_memory=10_000)
    lane = room.lane("t", 0)
    batch = add(room, lane, b"x" * 100)
    for size in (7, 30):
        add(room, lane, b"x" * size)
    lane.take(named=True)
    room.replace_by_halves(lane, batch)
    first, second = lane.waiting
    assert list(room.unfinished) in ([first, second], [second, first])
    room.finish(first, None)
    room.finish(second, None)
    assert room.used_bytes == 0
    assert not room.unfinished


@in_virtual_time
async def test_who_finds_no_room_waits_and_the_first_comes_first() -> None:
    room = accumulator(buffer_memory=1000, max_block_ms=5000)
    assert room.take_room(900)
    order: list[str] = []

    async def wait(name: str, size: int) -> None:
        await room.wait_for_room(size)
        order.append(name)

    tasks = [asyncio.create_task(wait(name, size)) for name, size in (("large", 800), ("small", 50), ("tiny", 1))]
    await asyncio.sleep(1)
    assert order == [], "the small ones do not pass the large one, though there would be room for them"
    assert not room.take_room(1)
    room.release(700)
    await asyncio.sleep(1)
    assert order == ["large", "small", "tiny"][: len(order)]
    room.release(200)
    await asyncio.gather(*tasks)
    assert order == ["large", "small", "tiny"]
    assert room.used_bytes == 851


@in_virtual_time
async def test_the_wait_for_room_is_bounded() -> None:
    room = accumulator(buffer_memory=1000, max_block_ms=3000)
    assert room.take_room(900)
    with pytest.raises(BufferFull, match=r"900 bytes wait to be sent.*3 s"):
        await room.wait_for_room(200)
    assert asyncio.get_running_loop().time() == pytest.approx(3)
    assert room.used_bytes == 900
    assert not room.line


@in_virtual_time
async def test_one_who_gives_up_lets_the_next_in() -> None:
    room = accumulator(buffer_memory=1000, max_block_ms=3000)
    assert room.take_room(900)
    large = asyncio.create_task(room.wait_for_room(500))
    await asyncio.sleep(1)
    small = asyncio.create_task(room.wait_for_room(100))
    await asyncio.sleep(0)
    large.cancel()
    await small
    assert asyncio.get_running_loop().time() == pytest.approx(1)
    assert room.used_bytes == 1000
    await asyncio.gather(large, return_exceptions=True)


@in_virtual_time
async def test_one_who_is_cancelled_after_the_room_was_given_gives_it_back() -> None:
    room = accumulator(buffer_memory=1000)
    assert room.take_room(900)
    waiting = asyncio.create_task(room.wait_for_room(500))
    await asyncio.sleep(0)
    room.release(900)
    assert room.used_bytes == 500
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert room.used_bytes == 0


@in_virtual_time
async def test_one_whose_time_is_over_when_the_room_is_given_keeps_it() -> None:
    room = accumulator(buffer_memory=1000, max_block_ms=3000)
    assert room.take_room(900)
    asyncio.get_running_loop().call_at(3.0, room.release, 900)
    waiting = asyncio.create_task(room.wait_for_room(500))
    try:
        await waiting
        assert room.used_bytes == 500
    except BufferFull:
        assert room.used_bytes == 0
    assert not room.line


@in_virtual_time
async def test_a_record_that_needs_more_than_is_left_goes_when_nothing_else_is_there() -> None:
    """The batch's own header is not counted beforehand: a record that just fits must not wait for ever."""
    room = accumulator(buffer_memory=1000)
    assert room.take_room(10)
    waiting = asyncio.create_task(room.wait_for_room(1005))
    await asyncio.sleep(0)
    room.release(10)
    await waiting
    assert room.used_bytes == 1005


@in_virtual_time
async def test_whoever_waits_when_it_is_closed_is_told_so() -> None:
    room = accumulator(buffer_memory=1000)
    assert room.take_room(900)
    waiting = asyncio.create_task(room.wait_for_room(500))
    await asyncio.sleep(0)
    room.close()
    with pytest.raises(Closed):
        await waiting
    assert room.used_bytes == 900


# -- ending


@in_virtual_time
async def test_failing_what_waits_leaves_what_is_under_way() -> None:
    room = accumulator(batch_size=1)
    lane, other = room.lane("t", 0), room.lane("t", 1)
    sent, waiting, elsewhere = add(room, lane, b"1"), add(room, lane, b"2"), add(room, other, b"3")
    lane.take(named=True)
    room.fail_waiting(TransactionFailed("aborted"))
    assert (sent.done, waiting.done, elsewhere.done) == (False, True, True)
    assert not lane.waiting
    assert not room.active
    assert lane.gap is None


@in_virtual_time
async def test_failing_a_batch_that_was_sent_before_leaves_a_gap() -> None:
    room = accumulator()
    lane = room.lane("t", 0)
    batch = add(room, lane, b"1")
    lane.take(named=True)
    lane.put_back(batch)
    room.fail_waiting(TransactionFailed("aborted"))
    assert lane.gap is batch


@in_virtual_time
async def test_failing_all_fails_what_is_under_way_too() -> None:
    room = accumulator(batch_size=1)
    lane = room.lane("t", 0)
    sent, waiting = add(room, lane, b"1"), add(room, lane, b"2")
    lane.take(named=True)
    room.fail_all(Closed("closed"))
    assert isinstance(sent.error, Closed)
    assert isinstance(waiting.error, Closed)
    assert room.used_bytes == 0


@in_virtual_time
async def test_waiting_for_all_waits_for_what_is_there_and_not_for_what_comes_later() -> None:
    room = accumulator(batch_size=1)
    lane = room.lane("t", 0)
    first, second = add(room, lane, b"1"), add(room, lane, b"2")
    waiting = asyncio.create_task(room.wait_for_all())
    await asyncio.sleep(0)
    add(room, lane, b"3")
    room.finish(second, None)
    await asyncio.sleep(1)
    assert not waiting.done()
    room.finish(first, None)
    await asyncio.sleep(0.1)
    assert waiting.done()
