"""One connection from the client's side: pairing, bounds, and brokers that break the protocol."""

from __future__ import annotations

import asyncio
import random
from struct import pack
from typing import Any

import pytest
from connection_bench import LIMIT, Bench, bench, bytes_answer, fetched

from semel.rpc.connection import Disconnected
from semel.wire.errors import WireError
from semel.wire.frame import read_request_header
from semel.wire.spec.fetch import FetchRequest, FetchResponse
from semel.wire.spec.produce import ProduceRequest

# -- requests and answers


@bench
async def test_answers_are_paired_with_their_requests_in_order(it: Bench) -> None:
    futures = [it.ask() for _ in range(3)]
    asked = it.asked()
    assert [key for key, _, _ in asked] == [22, 22, 22]
    ids = [correlation_id for _, _, correlation_id in asked]
    assert len(set(ids)) == 3
    assert it.connection.in_flight == 3
    it.link.arrive(b"".join(it.answer(correlation_id, 100 + correlation_id) for correlation_id in ids))
    assert [(await future).producer_id for future in futures] == [100 + correlation_id for correlation_id in ids]
    assert it.connection.in_flight == 0
    assert it.connection.is_open


@bench
async def test_the_client_is_named_in_every_request(it: Bench) -> None:
    it.ask()
    (frame,) = it.link.answers()
    assert read_request_header(frame).client_id == "me"


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 5, 7, 1000])
@bench
async def test_answers_may_come_in_pieces_of_any_size(it: Bench, chunk_bytes: int) -> None:
    futures = [it.ask() for _ in range(4)]
    it.link.arrive(b"".join(it.answer(number, number) for number in range(1, 5)), chunk_bytes)
    assert [(await future).producer_id for future in futures] == [1, 2, 3, 4]


@bench
async def test_answers_of_any_size_may_be_cut_anywhere(it: Bench) -> None:
    chance = random.Random(5)
    for _ in range(60):
        count = chance.randint(1, 4)
        futures = [it.ask_for_bytes() for _ in range(count)]
        contents = [chance.randbytes(chance.choice([0, 1, 100, 5000, 70_000, 90_000])) for _ in range(count)]
        first = it.connection._last_correlation_id - count + 1
        data = b"".join(bytes_answer(first + index, content) for index, content in enumerate(contents))
        position = 0
        while position < len(data):
            size = chance.choice([1, 3, 100, 40_000, 65_536, 200_000])
            it.link.arrive(data[position : position + size])
            position += size
        assert [(await future).auth_bytes for future in futures] == contents


@bench
async def test_an_answer_stays_as_it_is_when_others_follow(it: Bench) -> None:
    """Records in answers are views: their memory must not be used again."""
    first, second = [it.connection.send(FetchRequest(), 12, FetchResponse, 30) for _ in range(2)]
    it.link.arrive(fetched(1, b"first"))
    kept = await first
    it.link.arrive(fetched(2, b"other"))
    await second
    records: Any = kept.responses[0].partitions[0].records
    assert bytes(records) == b"first"


@bench
async def test_a_request_without_an_answer_waits_for_none(it: Bench) -> None:
    it.connection.send_unanswered(ProduceRequest(acks=0), 9)
    future = it.ask()
    (_, (_, _, correlation_id)) = it.asked()
    assert it.connection.in_flight == 1
    it.link.arrive(it.answer(correlation_id, 5))
    assert (await future).producer_id == 5


@bench
async def test_correlation_ids_begin_again_after_the_largest(it: Bench) -> None:
    it.connection._last_correlation_id = 2**31 - 2
    futures = [it.ask(), it.ask()]
    ids = [correlation_id for _, _, correlation_id in it.asked()]
    assert ids == [2**31 - 1, 0]
    it.link.arrive(b"".join(it.answer(correlation_id) for correlation_id in ids))
    await asyncio.gather(*futures)


@bench
async def test_a_future_that_was_cancelled_does_not_disturb_the_next(it: Bench) -> None:
    first, second = it.ask(), it.ask()
    first.cancel()
    it.link.arrive(it.answer(1) + it.answer(2, 7))
    assert (await second).producer_id == 7
    assert it.connection.is_open


# -- brokers that break the protocol


@bench
async def test_an_answer_out_of_order_ends_the_connection_and_fails_all(it: Bench) -> None:
    futures = [it.ask(), it.ask()]
    it.link.arrive(it.answer(2))
    for future in futures:
        with pytest.raises(
            Disconnected, match=r"10\.0\.0\.1:9092.*it answered request 2, but 1 was next.*InitProducerId"
        ):
            await future
    assert not it.connection.is_open
    assert it.link.is_closed
    assert it.ended == [it.connection]


@bench
async def test_an_answer_that_nobody_asked_for_ends_the_connection(it: Bench) -> None:
    it.link.arrive(it.answer(1))
    assert not it.connection.is_open
    assert it.ended == [it.connection]


@bench
async def test_an_answer_after_the_last_one_ends_the_connection_but_not_what_was_answered(it: Bench) -> None:
    future = it.ask()
    it.link.arrive(it.answer(1, 5) + it.answer(2))
    assert (await future).producer_id == 5
    assert not it.connection.is_open


@pytest.mark.parametrize("length", [LIMIT + 1, 2**31 - 1, -1, -(2**31), 0, 3])
@bench
async def test_a_length_that_is_not_allowed_ends_the_connection(it: Bench, length: int) -> None:
    future = it.ask()
    it.link.arrive(pack(">i", length) + b"....")
    with pytest.raises(Disconnected, match=f"announced an answer of {length} bytes; allowed are up to {LIMIT}"):
        await future
    assert it.link.is_closed


@bench
async def test_the_largest_answer_that_is_allowed_is_read(it: Bench) -> None:
    future = it.ask_for_bytes()
    around = len(bytes_answer(1, b"x" * 50_000)) - 50_000
    it.link.arrive(bytes_answer(1, b"x" * (LIMIT + 4 - around)), 7_000)
    assert len((await future).auth_bytes) == LIMIT + 4 - around


@bench
async def test_memory_for_a_large_answer_is_not_taken_before_it_comes(it: Bench) -> None:
    it.ask()
    it.link.arrive(pack(">i", LIMIT) + b"x")
    assert len(it.connection.get_buffer()) == LIMIT - 1


@bench
async def test_garbage_ends_the_connection_with_what_could_not_be_read(it: Bench) -> None:
    futures = [it.ask(), it.ask()]
    it.link.arrive(pack(">ii", 9, 1) + b"\x00\xff\xff\xff\xff")
    for future in futures:
        with pytest.raises(Disconnected, match="its answer to InitProducerId cannot be read") as caught:
            await future
        assert isinstance(caught.value.__cause__, WireError)
    assert it.link.is_closed
    assert it.ended == [it.connection]


@bench
async def test_bytes_after_an_answer_are_garbage_too(it: Bench) -> None:
    future = it.ask()
    good = it.answer(1)
    it.link.arrive(pack(">i", len(good) - 4 + 3) + good[4:] + b"...")
    with pytest.raises(Disconnected, match="too many"):
        await future


@bench
async def test_random_bytes_never_raise_into_the_loop(it: Bench) -> None:
    chance = random.Random(7)
    for _ in range(300):
        one = Bench(it.loop)
        future = one.ask()
        body = pack(">i", 1) + chance.randbytes(chance.randint(0, 40))
        one.link.arrive(pack(">i", len(body)) + body)
        await asyncio.sleep(0)
        if not future.done():
            future.cancel()
        elif future.exception() is not None:
            assert isinstance(future.exception(), Disconnected)
            assert one.link.is_closed
        one.connection.close()


@bench
async def test_nothing_that_follows_a_broken_answer_is_read(it: Bench) -> None:
    futures = [it.ask(), it.ask()]
    it.link.arrive(pack(">ii", 9, 1) + b"\x00\xff\xff\xff\xff" + it.answer(2, 5))
    with pytest.raises(Disconnected):
        await futures[1]
