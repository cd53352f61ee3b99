"""Somebody in the simulated world freezes, as by SIGSTOP: it does nothing, misses nothing, and goes on later."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

from semel.host.api import Link
from semel.sim.host import SimWorld
from semel.sim.loop import OWNER, SimLoop, run
from semel.sim.world.crowd import end_tasks


def owned(loop: SimLoop, owner: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    context = contextvars.copy_context()
    context.run(OWNER.set, owner)
    return loop.create_task(work, context=context)


def test_who_is_frozen_does_nothing_and_then_goes_on_where_it_was() -> None:
    loop = SimLoop()
    seen: list[tuple[str, float]] = []

    async def tick(name: str) -> None:
        for _ in range(4):
            await asyncio.sleep(1.0)
            seen.append((name, loop.time()))

    async def main() -> None:
        tasks = [owned(loop, name, tick(name)) for name in ("sleeper", "other")]
        await asyncio.sleep(1.5)
        loop.freeze("sleeper")
        await asyncio.sleep(10.0)
        loop.thaw("sleeper")
        await asyncio.gather(*tasks)

    run(main(), loop=loop)
    assert [at_s for name, at_s in seen if name == "other"] == [1.0, 2.0, 3.0, 4.0]
    assert [at_s for name, at_s in seen if name == "sleeper"] == [1.0, 11.5, 12.5, 13.5]


class Reader:
    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(100))
        self.data = b""
        self.is_closed = False

    def get_buffer(self) -> memoryview:
        return self.buffer

    def received(self, count: int) -> None:
        self.data += bytes(self.buffer[:count])

    def drained(self) -> None:
        pass

    def closed(self, reason: BaseException | None) -> None:
        self.is_closed = True


def test_what_arrives_for_the_frozen_is_there_when_it_goes_on() -> None:
    loop = SimLoop()
    reader = Reader()

    async def serve(world: SimWorld) -> None:
        await world.host("sleeper").network.listen("", 9, accept)

    def accept(link: Link) -> None:
        link.start(reader)

    async def main() -> None:
        world = SimWorld(loop, 1)
        await owned(loop, "sleeper", serve(world))
        link = await world.host("other").network.connect("sleeper", 9)
        link.start(Reader())
        link.send([b"before"])
        await asyncio.sleep(1.0)
        loop.freeze("sleeper")
        link.send([b" and meanwhile"])
        await asyncio.sleep(1.0)
        link.close()
        await asyncio.sleep(1.0)
        assert (reader.data, reader.is_closed) == (b"before", False)
        loop.thaw("sleeper")
        await asyncio.sleep(0.1)
        assert (reader.data, reader.is_closed) == (b"before and meanwhile", True)

    run(main(), loop=loop)


def test_who_waits_at_the_door_of_the_frozen_is_not_let_in_after_it_was_closed() -> None:
    loop = SimLoop()
    accepted: list[Link] = []
    peer = Reader()

    async def serve(world: SimWorld) -> None:
        listener = await world.host("sleeper").network.listen("", 9, accepted.append)
        loop.call_at(2.0, listener.close)

    async def main() -> None:
        world = SimWorld(loop, 1)
        await owned(loop, "sleeper", serve(world))
        await asyncio.sleep(1.0)
        loop.freeze("sleeper")
        await asyncio.sleep(2.0)
        (await world.host("other").network.connect("sleeper", 9)).start(peer)
        loop.thaw("sleeper")
        await asyncio.sleep(1.0)
        assert (accepted, peer.is_closed) == ([], True)

    run(main(), loop=loop)


def test_whoever_dies_frozen_is_dead() -> None:
    loop = SimLoop()

    async def work() -> None:
        await asyncio.sleep(5.0)
        raise AssertionError("it was dead")

    async def main() -> None:
        task = owned(loop, "sleeper", work())
        await asyncio.sleep(1.0)
        loop.freeze("sleeper")
        await end_tasks(loop, "sleeper")
        await asyncio.sleep(10.0)
        assert task.cancelled()

    run(main(), loop=loop)


def test_something_happens_at_a_chosen_call_to_the_network() -> None:
    """Before and after a connect, at a send, before a close."""

    def sprung_at(nth: int) -> list[str]:
        loop = SimLoop()
        done, sprung = ["nothing"], []

        async def main() -> None:
            world = SimWorld(loop, 1)
            await world.host("there").network.listen("", 9, lambda link: link.start(Reader()))
            host = world.host("here")
            world.wires.at_call("here", nth, lambda: sprung.append(done[-1]))
            link = await host.network.connect("there", 9)
            done.append("connected")
            link.start(Reader())
            for name in ("first", "second"):
                link.send([b"x"])
                done.append(name)
            link.close()
            done.append("closed")

        run(main(), loop=loop)
        return sprung

    assert [sprung_at(nth) for nth in range(1, 7)] == [
        ["nothing"],
        ["nothing"],
        ["connected"],
        ["first"],
        ["second"],
        [],
    ]
