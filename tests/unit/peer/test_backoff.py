"""Pauses grow and are not all the same; attempts end in time."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from semel.peer.backoff import Attempts, Backoff
from semel.sim.loop import SimLoop, run


@pytest.mark.parametrize(
    ("failures", "middle_s"), [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (1000, 1.0)]
)
def test_a_pause_is_twice_the_last_up_to_the_longest(failures: int, middle_s: float) -> None:
    backoff = Backoff(Random(1), 100, 1000)
    drawn = [backoff.delay_s(failures) for _ in range(1000)]
    assert min(drawn) >= middle_s * 0.8
    assert max(drawn) <= middle_s * 1.2
    if failures:
        assert min(drawn) < middle_s * 0.85
        assert max(drawn) > middle_s * 1.15, "or all would come back together"


def test_the_longest_pause_is_not_shorter_than_the_first() -> None:
    assert Backoff(Random(1), 500, 100).delay_s(3) >= 0.4


def tried(deadline_s: float) -> tuple[int, float]:
    """How many attempts that fail at once are made, and when the last one is."""

    async def scenario() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        attempts = Attempts(Backoff(Random(1), 100, 1000), began_s + deadline_s)
        while True:
            pause_s = attempts.pause_s()
            if pause_s is None:
                return attempts.failures, loop.time() - began_s
            await asyncio.sleep(pause_s)

    return run(scenario(), loop=SimLoop(end_s=1000))


def test_no_attempt_begins_after_the_deadline() -> None:
    for deadline_s in (0.05, 0.5, 2.0, 30.0):
        failures, last_s = tried(deadline_s)
        assert failures >= 1
        assert last_s < deadline_s


def test_the_time_that_is_left_is_used() -> None:
    assert tried(0.05) == (1, 0.0), "the first pause would take longer"
    failures, last_s = tried(30.0)
    assert last_s > 30 - 1.2
    assert 28 <= failures <= 40
