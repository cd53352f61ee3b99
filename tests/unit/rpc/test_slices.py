"""Long requests share the loop in slices, and their memory with all others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from semel.rpc.budget import MemoryBudget, Owner
from semel.rpc.long_requests import ENTRY_BYTES, LongAnswer, LongRequests
from semel.rpc.served import CloseConnection
from semel.rpc.slices import Slices
from semel.sim.loop import run
from semel.wire.codec import encode
from semel.wire.frame import response_parts
from semel.wire.lazy import lazily
from semel.wire.spec.list_groups import ListedGroup, ListGroupsResponse
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic

MEGABYTE = 1 << 20


class WorkClock:
    """Time passes by work alone."""

    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def long_requests(budget: MemoryBudget | None = None, most_entries: int = 100_000) -> LongRequests:
    return LongRequests(Slices(WorkClock()), budget or MemoryBudget(-1), lambda: most_entries)


async def work(slices: Slices, clock: WorkClock, turns: list[str], name: str, items: int) -> None:
    """A millisecond for each item."""
    for _ in range(items):
        clock.now_ms += 1
        turns.append(name)
        if slices.step():
            await slices.next()


def test_others_have_their_turn_after_each_slice() -> None:
    async def scenario() -> None:
        clock, turns = WorkClock(), list[str]()
        slices = Slices(clock)
        working = asyncio.ensure_future(work(slices, clock, turns, "long", 12))
        while not working.done():
            await asyncio.sleep(0)
            turns.append("other")
        together = "".join("o" if turn == "other" else "L" for turn in turns)
        assert "LLLLL" in together
        assert "LLLLLL" not in together, together
        assert together.count("L") == 12

    run(scenario())


def test_two_long_requests_take_turns_and_share_the_slice_of_a_turn() -> None:
    async def scenario() -> None:
        clock, turns = WorkClock(), list[str]()
        slices = Slices(clock)
        first = asyncio.ensure_future(work(slices, clock, turns, "a", 20))
        second = asyncio.ensure_future(work(slices, clock, turns, "b", 20))
        await asyncio.sleep(0)
        assert turns == ["a"] * 5 + ["b"], "the second one is told at once that the slice of this turn is over"
        await asyncio.gather(first, second)
        changes = [turn for turn, before in zip(turns[1:], turns, strict=False) if turn != before]
        assert len(changes) >= 6, turns

    run(scenario())


def test_where_computing_takes_no_time_a_slice_ends_by_the_number_of_its_items() -> None:
    async def scenario() -> None:
        slices = Slices(WorkClock())
        assert [slices.step() for _ in range(2001)] == [False] * 1999 + [True, True]
        await asyncio.sleep(0)
        assert not slices.step(), "another turn of the loop"

    run(scenario())


def test_who_is_gone_is_passed_over() -> None:
    async def scenario() -> None:
        slices = Slices(WorkClock())
        gone, stays = (asyncio.ensure_future(slices.next()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait_for(stays, 1)

    run(scenario())


# -- requests


def named(count: int) -> memoryview:
    return memoryview(encode(MetadataRequest(topics=[MetadataRequestTopic(name="x") for _ in range(count)]), 9))


def test_only_a_request_of_many_entries_is_long() -> None:
    long = long_requests()
    assert len(long.decoded_at_once(MetadataRequest, 9, named(60), 0).topics) == 60  # type: ignore[union-attr]
    assert long.decoded_at_once(MetadataRequest, 9, named(70), 0) is None


def test_entries_are_paid_for_while_they_are_read() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(10 * MEGABYTE)
        long = long_requests(budget)
        account = long.account()
        request = await long.decoded(MetadataRequest, 9, named(10_000), 0, account)
        assert len(request.topics or ()) == 10_000
        assert budget.bytes_of(Owner.REQUEST) > 9_000 * ENTRY_BYTES
        account.close()
        assert budget.used_bytes == 0

    run(scenario())


def test_a_request_of_too_many_entries_is_given_up() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(10 * MEGABYTE)
        long = long_requests(budget, most_entries=5000)
        account = long.account()
        with pytest.raises(CloseConnection, match="5001 entries, more than 5000"):
            await long.decoded(MetadataRequest, 9, named(5001), 0, account)
        await long.decoded(MetadataRequest, 9, named(5000), 0, account)
        account.close()
        assert budget.used_bytes == 0

    run(scenario())


def test_a_request_waits_for_memory_and_goes_on_when_there_is_some() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(MEGABYTE)
        budget.take_anyway(MEGABYTE - 100_000)
        long = long_requests(budget)
        account = long.account()
        reading = asyncio.ensure_future(long.decoded(MetadataRequest, 9, named(2000), 0, account))
        await asyncio.sleep(1)
        assert not reading.done()
        budget.give_back(MEGABYTE - 100_000)
        await asyncio.wait_for(reading, 1)
        account.close()
        assert (budget.used_bytes, budget.waiting) == (0, 0)

    run(scenario())


def test_a_request_that_is_gone_gives_back_what_it_had_and_waits_no_more() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(MEGABYTE)
        budget.take_anyway(MEGABYTE - 100_000)
        long = long_requests(budget)
        account = long.account()
        reading = asyncio.ensure_future(long.decoded(MetadataRequest, 9, named(2000), 0, account))
        await asyncio.sleep(1)
        reading.cancel()
        await asyncio.wait([reading])
        account.close()
        assert (budget.used_bytes, budget.waiting) == (MEGABYTE - 100_000, 0)

    run(scenario())


# -- answers


def groups(count: int) -> ListGroupsResponse:
    def listed(number: int) -> ListedGroup:
        return ListedGroup(group_id=f"a group with number {number}", group_type="classic")

    return ListGroupsResponse(groups=lazily(listed, range(count)))


def test_a_short_answer_is_made_at_once() -> None:
    async def scenario() -> None:
        long = long_requests()
        answer = LongAnswer(groups(100), 5, 7)
        assert long.is_made_at_once(answer)
        assert b"".join(answer.parts()) == b"".join(response_parts(7, groups(100), 5))  # type: ignore[arg-type]

    run(scenario())


def test_a_long_answer_is_made_piece_by_piece_and_paid_for() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(10 * MEGABYTE)
        long = long_requests(budget)
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, budget.bytes_of(Owner.ANSWER))
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(watch())
        answer = LongAnswer(groups(20_000), 5, 7)
        assert not long.is_made_at_once(answer)
        parts = await long.finished(answer)
        watching.cancel()
        whole = b"".join(parts)  # type: ignore[arg-type]
        assert whole == b"".join(response_parts(7, groups(20_000), 5))  # type: ignore[arg-type]
        assert len(whole) - 200_000 < most <= len(whole)
        assert budget.used_bytes == 0

    run(scenario())


def test_an_answer_that_finds_no_memory_waits_and_one_that_nobody_gets_leaves_nothing() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(MEGABYTE)
        budget.take_anyway(MEGABYTE - 150_000)
        long = long_requests(budget)
        making: list[asyncio.Task[Any]] = []
        for _ in range(2):
            making.append(asyncio.ensure_future(long.finished(LongAnswer(groups(20_000), 5, 7))))
        await asyncio.sleep(1)
        assert not any(one.done() for one in making)
        making[0].cancel()
        budget.give_back(MEGABYTE - 150_000)
        await asyncio.wait(making, timeout=1)
        assert making[1].result()
        assert (budget.used_bytes, budget.waiting) == (0, 0)

    run(scenario())
