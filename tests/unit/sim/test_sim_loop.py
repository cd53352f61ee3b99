"""Virtual time: nobody waits, everything keeps its order, and what would wait for ever is named."""

import asyncio
import subprocess
import sys
import time

import pytest

from semel.sim.clock import SimClock
from semel.sim.loop import Deadlock, SimLoop, TooMuchVirtualTime, run
from semel.sim.power import PowerLost


def test_a_year_passes_at_once():
    async def main():
        await asyncio.sleep(365 * 86400)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run(main()) == 365 * 86400
    assert time.monotonic() - began < 5


def test_timers_fire_in_the_order_of_their_times():
    async def main():
        fired = []
        loop = asyncio.get_running_loop()
        for delay_s in (3, 1, 2, 1.5):
            loop.call_later(delay_s, lambda d=delay_s: fired.append((d, loop.time())))
        await asyncio.sleep(10)
        return fired

    assert run(main()) == [(1, 1), (1.5, 1.5), (2, 2), (3, 3)]


def test_what_would_wait_for_ever_is_named():
    async def waiting_for_godot():
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waiting_for_godot"):
        run(waiting_for_godot())


def test_a_run_has_an_end():
    async def heartbeats():
        while True:  # noqa: ASYNC110 - it waits for nothing, that is the point
            await asyncio.sleep(1)

    with pytest.raises(TooMuchVirtualTime, match=r"the end was set at 100\.000 s; waiting: .*heartbeats"):
        run(heartbeats(), end_s=100)


def test_timeouts_and_groups_work():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(6)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(i, i)) for i in (3, 1, 2)]
        return [task.result() for task in tasks], asyncio.get_running_loop().time()

    assert run(main()) == ([3, 1, 2], 8)


def test_leftover_tasks_are_cancelled_in_order():
    ended = []

    async def background(name):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def dead():
        try:
            await asyncio.Event().wait()
        finally:
            raise PowerLost

    async def main():
        tasks = [asyncio.create_task(background(name)) for name in "abc"]
        tasks.insert(1, asyncio.create_task(dead()))
        await asyncio.sleep(0)
        return len(tasks)

    assert run(main()) == 4
    assert ended == ["a", "b", "c"]


def test_there_are_no_threads():
    async def main():
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.to_thread(print)
        with pytest.raises(RuntimeError, match="no threads"):
            asyncio.get_running_loop().call_soon_threadsafe(print)

    run(main())


HISTORY = """
import asyncio, hashlib
from semel.sim.loop import run

async def worker(name, history):
    try:
        await asyncio.sleep(100)
    finally:
        history.append(name)

async def main():
    history = []
    tasks = {asyncio.create_task(worker(n, history)) for n in range(200)}
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for future in asyncio.as_completed([asyncio.create_task(asyncio.sleep(0, n)) for n in range(100)]):
        history.append(await future)
    futures = {asyncio.get_running_loop().create_future(): n for n in range(100)}
    history.extend(futures[f] for f in set(futures))
    return history

print(hashlib.sha256(repr(run(main())).encode()).hexdigest())
"""


def test_sets_of_tasks_have_the_same_order_in_every_process():
    histories = set()
    for hash_seed, waste in (("1", "[]"), ("2", "[object() for _ in range(12345)]")):
        script = f"waste = {waste}\n{HISTORY}"
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(filter(None, sys.path))}
        histories.add(subprocess.check_output([sys.executable, "-c", script], env=environment))
    assert len(histories) == 1


def test_a_clock_counts_virtual_milliseconds():
    async def main():
        clock = SimClock(asyncio.get_running_loop(), wall_start_ms=1000)
        readings = []
        for _ in range(1000):
            await asyncio.sleep(0.001)
            readings.append((clock.monotonic_ms(), clock.wall_ms()))
        return readings

    assert run(main()) == [(n, 1000 + n) for n in range(1, 1001)]


def test_a_wall_clock_jumps_and_drifts_and_the_monotonic_one_does_not():
    async def main():
        clock = SimClock(asyncio.get_running_loop(), wall_start_ms=0)
        await asyncio.sleep(10)
        clock.jump_wall(-4000)
        assert (clock.wall_ms(), clock.monotonic_ms()) == (6000, 10_000)
        clock.drift(1000)
        assert clock.wall_ms() == 6000
        await asyncio.sleep(100)
        assert (clock.wall_ms(), clock.monotonic_ms()) == (106_100, 110_000)

    run(main(), loop=SimLoop())
