"""Simulated hosts: whole nodes that crash at a disk call, come back, and find what survived."""

import asyncio
import operator
import os

import pytest

from semel.host.api import FileRange
from semel.sim.host import SimWorld, sim_host
from semel.sim.loop import SimLoop, run
from semel.sim.power import PowerLost


class Client:
    """Counts the acknowledgements it gets."""

    def __init__(self):
        self.acknowledged = 0
        self.closings = []
        self._buffer = memoryview(bytearray(100))

    def get_buffer(self):
        return self._buffer

    def received(self, count):
        self.acknowledged += count

    def drained(self):
        pass

    def closed(self, reason):
        self.closings.append(reason)


class Server(Client):
    """Writes each byte it gets to its disk, flushes, and acknowledges it."""

    def __init__(self, host, link):
        super().__init__()
        self._host = host
        self._link = link
        self._flushing = asyncio.Lock()
        self._tasks = set()
        link.start(self)

    def received(self, count):
        task = asyncio.create_task(self._append(bytes(self._buffer[:count])))
        self._tasks.add(task)

    async def _append(self, data):
        async with self._flushing:
            file = self._host.disk.open("/log")
            file.write_at(file.size(), data)
            await file.flush()
            file.close()
            self._link.send([b"k" * len(data)])


async def start_server(world):
    host = world.host("server")
    if not host.disk.exists("/log"):
        host.disk.open("/log", create=True)
        host.disk.sync_dir_now("/")
    await host.network.listen("server", 9092, lambda link: Server(host, link))
    return host


def test_what_was_acknowledged_is_on_the_disk_after_a_crash_at_every_call():
    async def scenario(loop, seed, call, when):
        world = SimWorld(loop, seed)
        await start_server(world)
        world.disk("server").crash_at(call, when)
        client = Client()
        link = await world.host("client").network.connect("server", 9092)
        link.start(client)
        for number in range(20):
            link.send([bytes([number])])
            await asyncio.sleep(0.002)
        await asyncio.sleep(1)
        crashed = world.disk("server").dead
        if not crashed:
            world.lose_power("server")
        host = await start_server(world)
        await asyncio.sleep(1)
        assert [type(reason) for reason in client.closings] == [ConnectionResetError]
        assert host.disk.read_file("/log")[: client.acknowledged] == bytes(range(client.acknowledged))
        return crashed, client.acknowledged

    crashes, acknowledged = 0, set()
    for call in range(3, 60):
        for when in ("before", "during", "after"):
            loop = SimLoop()
            crashed, count = run(scenario(loop, call, call, when), loop=loop)
            crashes += crashed
            acknowledged.add(count)
    assert crashes > 60
    assert len(acknowledged) > 10


def test_a_killed_node_keeps_its_page_cache_and_a_node_without_power_does_not():
    async def main(loop, how):
        world = SimWorld(loop, 3)
        host = world.host("n")
        host.disk.open("/a", create=True).write_at(0, b"x")
        getattr(world, how)("n")
        with pytest.raises(PowerLost):
            host.disk.exists("/a")
        return world.host("n").disk.exists("/a")

    loop = SimLoop()
    assert run(main(loop, "kill"), loop=loop) is True
    seen = set()
    for seed in range(20):
        loop = SimLoop()

        async def scenario(loop=loop, seed=seed):
            world = SimWorld(loop, seed)
            world.host("n").disk.open("/a", create=True)
            world.lose_power("n")
            return world.host("n").disk.exists("/a")

        seen.add(run(scenario(), loop=loop))
    assert seen == {True, False}


def test_jobs_run_inline_but_only_with_what_can_be_pickled():
    async def main(loop):
        host = sim_host(loop, 1, "n")
        assert await host.jobs.run(operator.add, 1, 2) == 3
        assert await host.jobs.run(os.getpid) == os.getpid()
        with pytest.raises(ZeroDivisionError):
            await host.jobs.run(operator.truediv, 1, 0)
        with pytest.raises(Exception, match="pickle"):
            await host.jobs.run(lambda: 1)
        shared = [1]
        copy = await host.jobs.run(operator.iadd, shared, [2])
        assert (shared, copy) == ([1], [1, 2])
        assert await host.jobs.run_in_thread(operator.iadd, shared, [2]) is shared
        host.close()

    loop = SimLoop()
    run(main(loop), loop=loop)


def test_chance_depends_on_seed_node_and_start_alone():
    async def main(loop, seed):
        world = SimWorld(loop, seed)
        first = world.host("n").random.random()
        other = world.host("m").random.random()
        world.kill("n")
        again = world.host("n").random.random()
        return first, other, again

    def draw(seed):
        loop = SimLoop()
        return run(main(loop, seed), loop=loop)

    assert draw(1) == draw(1)
    assert len({*draw(1), *draw(2)}) == 6


def test_a_range_of_a_node_that_died_is_dropped_without_a_word():
    async def main(loop):
        world = SimWorld(loop, 1)
        server, client = world.host("server"), world.host("client")
        file = server.disk.open("/a", create=True)
        file.write_at(0, bytes(1_000_000))
        links = []
        await server.network.listen("server", 1, links.append)
        near = await client.network.connect("server", 1)
        receiver = Client()
        near.start(receiver)
        links[0].send([FileRange(file, 0, 1_000_000)])
        world.lose_power("server")
        assert file.pins == 0
        await asyncio.sleep(10)
        assert receiver.acknowledged <= 65536
        assert receiver.closings == []

    loop = SimLoop()
    run(main(loop), loop=loop)
