"""Named deadlines: one a name, moved at no cost, and none left when their owner is gone."""

from __future__ import annotations

import asyncio

from semel.coordinator.group.timers import Timers
from semel.sim.loop import run


def test_a_deadline_comes_once_and_at_its_time() -> None:
    async def scenario() -> None:
        loop, timers, came = asyncio.get_running_loop(), Timers(), []
        timers.set("a", 1000, lambda: came.append(loop.time()))
        await asyncio.sleep(10)
        assert came == [1.0]
        assert "a" not in timers

    run(scenario())


def test_a_deadline_that_is_moved_comes_later_or_sooner_and_does_what_was_said_last() -> None:
    async def scenario() -> None:
        loop, timers, came = asyncio.get_running_loop(), Timers(), []
        timers.set("a", 1000, lambda: came.append(("first", loop.time())))
        timers.set("a", 5000, lambda: came.append(("later", loop.time())))
        timers.set("b", 5000, lambda: came.append(("first", loop.time())))
        timers.set("b", 2000, lambda: came.append(("sooner", loop.time())))
        await asyncio.sleep(10)
        assert came == [("sooner", 2.0), ("later", 5.0)]

    run(scenario())


def test_moving_a_deadline_away_again_and_again_makes_no_timers() -> None:
    async def scenario() -> None:
        timers, came = Timers(), []
        for _ in range(1000):
            timers.set("a", 1000, lambda: came.append(1))
        assert len(asyncio.get_running_loop().timers()) == 1  # type: ignore[attr-defined]
        timers.close()

    run(scenario())


def test_a_deadline_that_is_cancelled_does_not_come() -> None:
    async def scenario() -> None:
        timers, came = Timers(), []
        timers.set("a", 1000, lambda: came.append("a"))
        timers.set("b", 1000, lambda: came.append("b"))
        timers.cancel("a")
        timers.cancel("nobody")
        timers.set("c", 1000, lambda: came.append("c"))
        await asyncio.sleep(0.5)
        timers.set("c", 1000, lambda: came.append("c"))
        timers.close()
        await asyncio.sleep(10)
        assert came == []

    run(scenario())


def test_a_deadline_may_be_set_again_when_it_comes() -> None:
    async def scenario() -> None:
        loop, timers, came = asyncio.get_running_loop(), Timers(), []

        def again() -> None:
            came.append(loop.time())
            if len(came) < 3:
                timers.set("a", 1000, again)

        timers.set("a", 1000, again)
        await asyncio.sleep(10)
        assert came == [1.0, 2.0, 3.0]

    run(scenario())
