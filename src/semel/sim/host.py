"""Simulated hosts: nodes of one world share a loop, wires and a seed; each has a disk and a clock of its own.

A node that crashes is started again by asking the world for its host once more: it finds what survived on its disk.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Callable
from io import BytesIO
from typing import Any, Literal

from semel.host.api import Arguments, Host, Result
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk, When
from semel.sim.loop import SimLoop
from semel.sim.medium import Medium
from semel.sim.network import SimNetwork, Wires


class SimJobs:
    """Jobs run inline, but through pickle, as on the way to another process."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    async def run(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        work, copies = self._copied((function, args))
        await asyncio.sleep(0)
        self._disk.check_alive()
        result: Result = self._copied(work(*copies))
        return result

    def _copied(self, sent: Any) -> Any:
        """What arrives in a process on the same machine: everything anew, but for the disk, which is the same one."""
        stream = BytesIO()
        sender = pickle.Pickler(stream)
        sender.persistent_id = lambda part: "disk" if part is self._disk else None  # type: ignore[method-assign]
        sender.dump(sent)
        stream.seek(0)
        receiver = pickle.Unpickler(stream)
        receiver.persistent_load = lambda _: self._disk  # type: ignore[method-assign]
        return receiver.load()

    async def run_in_thread(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """Shares memory with the loop, as a thread does, and leaves it a turn before it works."""
        await asyncio.sleep(0)
        self._disk.check_alive()
        return function(*args)

    def close(self) -> None:
        pass


class SimWorld:
    def __init__(
        self,
        loop: SimLoop,
        seed: int,
        *,
        latency_ms: tuple[float, float] = (0.1, 1.0),
        flush_latency_ms: tuple[float, float] = (0.1, 2.0),
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.flush_latency_ms = flush_latency_ms
        self.wires = Wires(loop, self.random("wires"), latency_ms=latency_ms)
        self.disks: dict[str, SimDisk] = {}
        self.clocks: dict[str, SimClock] = {}
        self._silent_crash: dict[str, bool] = {}

    def random(self, purpose: str) -> random.Random:
        """Chance of its own for every purpose, so that one more draw here does not change the history there."""
        return random.Random(f"{self.seed}/{purpose}")

    def disk(self, node: str) -> SimDisk:
        """The node's disk, to plant faults in. One call, `crash_at`, takes the whole node down with it."""
        if node not in self.disks:
            self.disks[node] = SimDisk(
                self.random(f"{node}/disk"),
                flush_latency_ms=self.flush_latency_ms,
                on_power_lost=lambda: self.wires.crash(node, silent=self._silent_crash.get(node, True)),
            )
        return self.disks[node]

    def host(self, node: str) -> Host:
        """A node's host, at first and after each crash."""
        if self.disk(node).dead:
            self.lose_power(node)
        disk = self.disk(node)
        clock = self.clocks.setdefault(node, SimClock(self.loop))
        start = self.wires.starts_of(node)
        return Host(
            clock=clock,
            disk=disk,
            network=SimNetwork(self.wires, node),
            random=self.random(f"{node}/{start}"),
            jobs=SimJobs(disk),
        )

    def crash_at(self, node: str, call: int, when: When, *, power: bool) -> None:
        """The node dies at a changing call to its disk, counted from now on: by power loss or by kill -9. Of a kill,
        `kill` has to be called before the next start: else the disk is treated as after a power loss."""
        self._silent_crash[node] = power
        disk = self.disk(node)
        disk.crash_at(disk.calls + call, when)

    def crash_at_send(self, node: str, nth: int, when: Literal["before", "after"], *, power: bool) -> None:
        """The same around one of the node's sends."""
        self._silent_crash[node] = power
        self.wires.crash_at_send(node, nth, self.disk(node).lose_power, when)

    def lose_power(self, node: str) -> None:
        """The node dies at once, its peers hear nothing, and its disk keeps what `semel.sim.medium` leaves."""
        self._silent_crash[node] = True
        self.disks[node] = self.disk(node).after_power_loss()

    def image(self, node: str) -> Medium:
        """A copy of all that the node's disk holds now, to be restored later, there or elsewhere."""
        return self.disk(node).medium.copy()

    def restore(self, node: str, image: Medium) -> None:
        """A node that is down finds another disk when it starts: that of `image`, and nothing else."""
        self.disks[node] = self.disk(node).after_replacement(image)

    def set_clock_apart(self, node: str, by_ms: int) -> None:
        """The node's wall clock is ahead of that of the world, or with a negative number behind."""
        self.clocks.setdefault(node, SimClock(self.loop)).jump_wall(by_ms)

    def kill(self, node: str) -> None:
        """kill -9: the node dies at once, its peers are reset, and the page cache survives."""
        self._silent_crash[node] = False
        self.disks[node] = self.disk(node).after_kill()
        self._silent_crash[node] = True


def sim_host(loop: SimLoop, seed: int, node_name: str, world: SimWorld | None = None) -> Host:
    """One node's host, in a world of its own unless it is given one."""
    return (SimWorld(loop, seed) if world is None else world).host(node_name)
