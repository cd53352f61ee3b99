"""Coroutines that begin at once: nobody can tell, but for the turns of the loop that it takes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from semel.rpc.eager_task import EagerTask


async def test_one_that_does_not_wait_is_over_at_once() -> None:
    async def three() -> int:
        return 3

    begun = EagerTask(three())
    assert begun.is_over
    assert begun.result == 3
    assert await begun == 3


async def test_none_is_a_result() -> None:
    async def nothing() -> None:
        return None

    assert EagerTask(nothing()).is_over


async def test_what_it_raises_before_it_waits_is_raised() -> None:
    async def wrong() -> None:
        raise KeyError("k")

    with pytest.raises(KeyError):
        EagerTask(wrong())


async def test_what_others_do_between_its_beginning_and_its_task_is_not_missed() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def waiting() -> int:
        return await future + 1

    begun = EagerTask(waiting())
    assert not begun.is_over
    future.set_result(1)
    assert await begun.in_task() == 2


@pytest.mark.parametrize("is_done_before", [True, False])
async def test_several_may_wait_for_the_same(is_done_before: bool) -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def waiting() -> int:
        return await future

    tasks = [EagerTask(waiting()).in_task() for _ in range(3)]
    if not is_done_before:
        await asyncio.sleep(0)
    future.set_result(1)
    assert await asyncio.gather(*tasks) == [1, 1, 1]


async def _steps(random: Random, told: list[Any]) -> int:
    """Waits in all kinds of ways; some fail."""
    for _ in range(random.randrange(6)):
        kind = random.randrange(5)
        told.append(kind)
        try:
            if kind == 0:
                await asyncio.sleep(0)
            elif kind == 1:
                told.append(await asyncio.gather(_steps(random, told), asyncio.sleep(0, "slept")))
            elif kind == 2:
                async with asyncio.Lock():
                    await asyncio.sleep(0.0001)
            elif kind == 3:
                failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_soon(failing.set_exception, ValueError("no"))
                await failing
            else:
                raise KeyError(kind)
        except ValueError as error:
            told.append(str(error))
    return len(told)


async def _told_by(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except KeyError as error:
        return repr(error)


@pytest.mark.parametrize("seed", range(100))
async def test_it_goes_on_as_it_would_in_a_task(seed: int) -> None:
    async def begun_first(told: list[Any]) -> Any:
        return await EagerTask(_steps(Random(seed), told))

    plain: list[Any] = []
    early: list[Any] = []
    assert await _told_by(_steps(Random(seed), plain)) == await _told_by(begun_first(early))
    assert plain == early


@pytest.mark.parametrize("has_task", [True, False])
async def test_whoever_is_given_up_is_cancelled_where_it_waits(has_task: bool) -> None:
    told = []
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waiting() -> None:
        try:
            await future
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        finally:
            told.append("ended")

    begun = EagerTask(waiting())
    task = begun.in_task()
    if has_task:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert told == ["cancelled", "ended"]
    assert future.cancelled()


async def test_nobody_complains_of_what_was_given_up_and_ends_with_an_error() -> None:
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))

    async def waiting() -> None:
        await asyncio.gather(loop.create_future(), loop.create_future())

    task = EagerTask(waiting()).in_task()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert not complaints
