"""A node of a simulated world: our broker, unchanged. It dies in many ways, and comes back on the same disk.

A death takes all of its tasks along, wherever they are. When it is back, what it has recovered is held against what
the dead one knew.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from typing import NamedTuple

from semel.broker.broker import Broker
from semel.broker.identity import WrongDirectory
from semel.config import BrokerConfig
from semel.log.errors import BrokenLog, CorruptSegment, Refused
from semel.sim.disk import SimDisk
from semel.sim.host import SimWorld
from semel.sim.loop import OWNER
from semel.sim.medium import Medium
from semel.sim.world.crowd import end_tasks
from semel.sim.world.findings import Findings
from semel.sim.world.recovered import Exactness, compare
from semel.sim.world.watching import is_of_the_disk

BROKER = "broker"
PORT = 9092
ROOT = "/data"
RETRY_START_S = 0.5
START_PATIENCE_S = 60.0
RESTART_S = 0.3
CLEAN_REFUSALS = (BrokenLog, CorruptSegment, Refused, WrongDirectory, OSError)
"""How a node may refuse to start when its own metadata are damaged: in words, not by falling over."""
MACHINE_DIES = 0.3
"""How often the machine goes down with a node that ends itself."""


class Death(NamedTuple):
    """How the node dies, for how long it is away, and at which disk call of its next start it dies again (0: at none).
    `is_exact`: it dies between two steps, and so its memory is what it has written."""

    power: bool
    down_s: float
    is_exact: bool = False
    relapse_call: int = 0


class SimulatedNode:
    """`on_up` is called when a start is over, with nothing in between. `name` is also that of its host."""

    def __init__(
        self,
        world: SimWorld,
        settings: Mapping[str, str],
        findings: Findings,
        on_up: Callable[[Broker], None],
        name: str = BROKER,
    ) -> None:
        self.name = name
        self.world = world
        self.findings = findings
        self.is_up = False
        self.next_death = Death(power=True, down_s=0.1)
        self.may_fail = False
        """A fault of the disk is under way: the node may stop, and may fail to start."""
        self.is_rotten = False
        """Bits have flipped on the disk, and are not mended yet."""
        self.has_other_disk = False
        """Since its last start: what it knew there counts no more."""
        self._config = {
            "log.dir": ROOT,
            "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
            "advertised.listeners": f"PLAINTEXT://{name}:{PORT}",
            "node.id": "1",
            **settings,
        }
        self._on_up = on_up
        self._random = world.random("what breaks with the node" if name == BROKER else f"what breaks with {name}")
        self._starts = 0
        self._is_running = False
        self._broker: Broker | None = None
        self._dead: Broker | None = None
        self._exactness = Exactness.SAME
        self._death = self.next_death
        self._cause: Death | None = None
        self._died = asyncio.Event()
        self._came_up = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        disk = world.disk(name)
        self._cut_links = disk.on_power_lost
        disk.on_power_lost = self._note_death

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    @property
    def disk(self) -> SimDisk:
        return self.world.disk(self.name)

    @property
    def owner(self) -> str:
        return f"{self.name}#{self._starts}"

    # -- life

    async def open(self) -> None:
        """The first start; from now on it is started again whenever it has died."""
        await self._start()
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise())

    async def until_up(self) -> None:
        while not self.is_up:
            self._came_up.clear()
            await self._came_up.wait()

    async def _supervise(self) -> None:
        while True:
            await self._died.wait()
            while not self.is_up:
                self._died.clear()
                death = self._death
                await end_tasks(self.world.loop, self.owner)
                await asyncio.sleep(death.down_s)
                if self.disk.dead and not death.power:
                    self.world.kill(self.name)
                await self._start(death.relapse_call)

    async def _start(self, relapse_call: int = 0) -> None:
        """It comes up, or dies once more."""
        self._starts += 1
        self._is_running = True
        context = contextvars.copy_context()
        context.run(OWNER.set, self.owner)
        host = self.world.host(self.name)
        if relapse_call:
            self.next_death = Death(power=True, down_s=0.1)
            self.world.crash_at(self.name, relapse_call, "during", power=True)
        disk = self.disk

        def on_broken(reason: BaseException) -> None:
            if not disk.dead:
                self._broke(reason)

        broker = self._broker = context.run(Broker, host, BrokerConfig(self._config), on_broken)
        task = asyncio.get_running_loop().create_task(self._started(broker), context=context)
        died = asyncio.get_running_loop().create_task(self._died.wait())
        try:
            await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
            error = None if task.cancelled() else task.exception()
        finally:
            died.cancel()
        if self._died.is_set():  # perhaps in the very moment in which it came up
            self.findings.note(self.name, "died while it started")
            return
        if error is not None:
            self.findings.note(self.name, f"does not start: {type(error).__name__}: {error}")
            if not isinstance(error, CLEAN_REFUSALS if self.is_rotten else OSError | Refused) or not self.may_fail:
                self.findings.wrong("does not start", f"{type(error).__name__}: {error}")
            self._dead = None
            self._cause = Death(False, RETRY_START_S)
            self.world.kill(self.name)
            return
        self.findings.note(self.name, "is up" if self._starts == 1 else f"is up again (start {self._starts})")
        self.is_up = True
        self._came_up.set()

    async def _started(self, broker: Broker) -> None:
        await broker.start()
        # Without a turn of the loop: nothing that it does from now on has happened yet.
        dead, self._dead = self._dead, None
        if dead is not None and broker.config.layout.is_alone:  # among others it has followed some of them since
            compare(dead, broker, self._exactness, self.findings, may_lack=self.may_fail)
        self._on_up(broker)
        self.has_other_disk = False

    # -- death

    def kill(self, down_s: float, relapse_call: int = 0) -> None:
        self._cause = Death(False, down_s, is_exact=True, relapse_call=relapse_call)
        self.world.kill(self.name)

    def lose_power(self, down_s: float, relapse_call: int = 0) -> None:
        self._cause = Death(True, down_s, is_exact=True, relapse_call=relapse_call)
        self.world.lose_power(self.name)

    def restore(self, image: Medium, down_s: float) -> None:
        """It loses power, unless it is away already, and comes back with another disk: an old one of its own, say."""
        if self._is_running:
            self.lose_power(down_s)
        self.world.restore(self.name, image)
        self._dead, self.has_other_disk = None, True

    @property
    def settings(self) -> Mapping[str, str]:
        """What it is started with."""
        return self._config

    @property
    def lacks_partitions(self) -> bool:
        """Whether the node has given up on a partition that it could not open: until its next start."""
        return self.broker.topics.lacks_partitions

    async def restart(self) -> None:
        """A clean stop, and a start."""
        stopped = self.broker
        if await self.stop():
            self._dead, self._exactness = stopped, Exactness.SAME
            self._cause = Death(False, 0.0)
            self.world.kill(self.name)

    async def stop(self) -> bool:
        """Whether it came to the end of a clean stop, which leaves no task behind."""
        self.is_up = False
        context = contextvars.copy_context()
        context.run(OWNER.set, self.owner)
        stopping = asyncio.get_running_loop().create_task(self.broker.stop(), context=context)
        died = asyncio.get_running_loop().create_task(self._died.wait())
        try:
            await asyncio.wait([stopping, died], return_when=asyncio.FIRST_COMPLETED)
        finally:
            died.cancel()
        if not stopping.done() or self.disk.dead:
            return False
        error = stopping.exception()
        if error is not None:
            self.findings.note(self.name, f"does not stop cleanly: {type(error).__name__}: {error}")
            if not (self.may_fail and isinstance(error, OSError)):
                self.findings.wrong("does not stop cleanly", f"{type(error).__name__}: {error}")
            self._cause = Death(True, RETRY_START_S)
            self.world.lose_power(self.name)
            return False
        await asyncio.sleep(0)
        for task in self.world.loop.unfinished_tasks(self.owner):
            self.findings.wrong("task left over", f"{task.get_coro()} goes on after a clean stop")
        return True

    def _note_death(self) -> None:
        """Called in the middle of whatever the node was doing."""
        self._is_running = False
        if self._cut_links is not None:
            self._cut_links()
        death = self._death = self._cause or self.next_death
        self._cause = None
        if self.is_up:
            self._dead = self._broker
            self._exactness = Exactness.SAME if death.is_exact else Exactness.ALL_WRITTEN
            how = "loses power" if death.power else "is killed"
            self.findings.note(self.name, f"{how}, down for {death.down_s:.3f} s")
        if death.power:
            self._exactness = Exactness.DURABLE
        self.is_up = False
        self._died.set()

    def _broke(self, reason: BaseException) -> None:
        """The node ends itself: nothing can be promised any more."""
        self.findings.note(self.name, f"stops: {type(reason).__name__}: {reason}")
        if not (self.may_fail and is_of_the_disk(reason)):
            self.findings.wrong("node broken", f"{type(reason).__name__}: {reason}")
        if self._random.random() < MACHINE_DIES:
            self.lose_power(RESTART_S)
        else:
            # What could not be flushed is still in memory, counts as clean, and is not on the disk.
            self._cause = Death(False, RESTART_S)
            self.world.kill(self.name)

    async def start_alone(self) -> BaseException | None:
        """After `close`: one more start, on whatever the disk holds. Returns why it failed, if it did."""
        self.world.kill(self.name)
        self._starts += 1
        context = contextvars.copy_context()
        context.run(OWNER.set, self.owner)
        broker = self._broker = context.run(
            Broker, self.world.host(self.name), BrokerConfig(self._config), lambda reason: None
        )
        task = asyncio.get_running_loop().create_task(broker.start(), context=context)
        await asyncio.wait([task], timeout=START_PATIENCE_S)
        return task.exception() if task.done() else TimeoutError("the start does not come to an end")

    async def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            self._supervisor = None
        await end_tasks(self.world.loop, self.owner)
