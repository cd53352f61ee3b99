"""Whose code runs in the simulated world; deaths of one of many, or around a send; runs that are busy for ever."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, Literal

import pytest

from semel.host.api import Link
from semel.sim.host import SimWorld
from semel.sim.loop import OWNER, SimLoop, TooManyTurns, run
from semel.sim.power import PowerLost


class Taker:
    """A receiver that notes whose code it is."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.owners: set[str] = set()
        self.ended: list[BaseException | None] = []
        self._buffer = memoryview(bytearray(100))

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self.data += self._buffer[:count]
        self.owners.add(OWNER.get())

    def drained(self) -> None:
        pass

    def closed(self, reason: BaseException | None) -> None:
        self.ended.append(reason)


def task_of(owner: str, work: Any) -> asyncio.Task[Any]:
    context = contextvars.copy_context()
    context.run(OWNER.set, owner)
    return asyncio.get_running_loop().create_task(work, context=context)


async def joined(world: SimWorld, taker: Taker) -> Link:
    """A client's link to a node that listens, each with code of its own."""

    async def listen() -> None:
        await world.host("node").network.listen("", 9, lambda link: link.start(taker))

    await task_of("node", listen())
    link: Link = await task_of("client", world.host("client").network.connect("node", 9))
    return link


def simulated(scenario: Any, **options: Any) -> SimLoop:
    loop = SimLoop(end_s=1000, **options)
    run(scenario(SimWorld(loop, 1)), loop=loop)
    return loop


def test_what_arrives_is_handled_by_the_owner_of_that_end() -> None:
    async def scenario(world: SimWorld) -> None:
        taker = Taker()
        link = await joined(world, taker)
        link.start(Taker())
        link.send([b"hello"])
        await asyncio.sleep(1)
        assert bytes(taker.data) == b"hello"
        assert taker.owners == {"node"}

    simulated(scenario)


def test_a_dead_owner_has_no_tasks_and_no_timers_and_the_others_go_on() -> None:
    async def scenario(world: SimWorld) -> None:
        ran: list[str] = []

        async def live(name: str) -> None:
            asyncio.get_running_loop().call_later(5, ran.append, f"{name} timer")
            await asyncio.sleep(10)
            ran.append(name)

        tasks = [task_of("one", live("one")), task_of("two", live("two"))]
        await asyncio.sleep(1)
        assert world.loop.end_owner("one") == [tasks[0]]
        await asyncio.sleep(20)
        assert tasks[0].cancelled()
        assert ran == ["two timer", "two"]
        assert world.loop.unfinished_tasks("one") == []

    simulated(scenario)


def test_what_a_dead_owner_has_sent_still_arrives() -> None:
    async def scenario(world: SimWorld) -> None:
        taker = Taker()
        link = await joined(world, taker)

        async def say() -> None:
            link.start(Taker())
            link.send([b"last words"])

        await task_of("client", say())
        world.loop.end_owner("client")
        await asyncio.sleep(1)
        assert bytes(taker.data) == b"last words"

    simulated(scenario)


@pytest.mark.parametrize(("when", "arrives"), [("before", b"1"), ("after", b"12")])
def test_a_node_dies_around_a_send(when: Literal["before", "after"], arrives: bytes) -> None:
    seen = set()
    for seed in range(30):
        loop = SimLoop(end_s=1000)

        async def scenario(world: SimWorld) -> None:
            taker = Taker()
            link = await joined(world, taker)
            link.start(Taker())
            world.crash_at_send("client", 2, when, power=False)
            link.send([b"1"])
            await asyncio.sleep(1)
            with pytest.raises(PowerLost):
                link.send([b"2"])
            await asyncio.sleep(1)
            assert world.disk("client").dead
            assert len(taker.ended) == 1, "a kill is seen by the other end"
            seen.add(bytes(taker.data))

        run(scenario(SimWorld(loop, seed)), loop=loop)
    assert seen == {b"1", arrives}, "what was sent may be lost with the node"


def test_a_run_that_never_waits_is_ended() -> None:
    async def scenario(world: SimWorld) -> None:
        def again() -> None:
            world.loop.call_soon(again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(TooManyTurns, match="scenario"):
        simulated(scenario, max_turns=1000)


def test_a_mended_disk_has_room_and_no_errors() -> None:
    async def scenario(world: SimWorld) -> None:
        disk = world.disk("node")
        file = disk.open("/file", create=True)
        disk.fill_after(0)
        disk.fail_at("write", 2)
        with pytest.raises(OSError, match="space"):
            file.write_at(0, b"data")
        disk.mend()
        file.write_at(0, b"data")
        file.write_at(4, b"data")
        assert file.size() == 8

    simulated(scenario)


def test_a_timer_never_finds_that_it_is_early() -> None:
    """Also if it is due within the resolution of the clock, while there is something else to do."""

    async def scenario(world: SimWorld) -> None:
        loop, due_s, turns = world.loop, world.loop.time() + 5e-7, []

        def look() -> None:
            turns.append(loop.time())
            if loop.time() < due_s:
                loop.call_at(due_s, look)
                loop.call_soon(lambda: None)

        look()
        await asyncio.sleep(1)
        assert len(turns) == 2

    simulated(scenario, max_turns=100)
