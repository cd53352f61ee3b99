"""An attack on a cluster: one fault after the other, drawn from a seed, until it is called off; then it heals.

Faults are kinds that can be named: kill a node and start it again, pause it, cut connections, delay what they carry.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from semel.sim.attack.fault_proxy import FaultProxy
from semel.sim.attack.weather import Weather
from semel.sim.history import History, Note


class FaultKind(Enum):
    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    DELAY = "delay"


ON_NODES = frozenset({FaultKind.KILL, FaultKind.PAUSE})
"""Faults that need nodes of our own."""
PROCESS = "attack"
REST_S = (0.1, 0.8)
PAUSE_S = (0.2, 3.0)
DOWN_S = (0.0, 0.7)
STORM_S = (0.3, 1.5)
CUT_CHANCE = (0.02, 0.3)
DELAY_CHANCE = (0.1, 0.6)
SILENCE_S = (0.02, 0.2)


class AttackedNode(Protocol):
    @property
    def name(self) -> str: ...

    async def kill(self) -> None:
        """At once, without a word."""

    async def start(self) -> None:
        """On the same data and the same address; returns when it serves. One that runs is left alone."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Assault:
    def __init__(
        self,
        kinds: Sequence[FaultKind],
        nodes: Sequence[AttackedNode],
        weathers: Sequence[Weather],
        random: random_module.Random,
        history: History,
        proxies: Sequence[FaultProxy] = (),
    ) -> None:
        self.dealt: Counter[FaultKind] = Counter()
        self.struck: Counter[str] = Counter()
        """In a cluster of several nodes: the same faults by what they met, "kill leader" say."""
        self._kinds = list(kinds)
        self._nodes = list(nodes)
        self._weathers = list(weathers)
        self._random = random
        self._history = history
        self._proxies = list(proxies)
        self._left = list(kinds)

    async def run(self) -> None:
        while self._kinds:
            await asyncio.sleep(self._random.uniform(*REST_S))
            await self._strike(self._next_kind())

    def _next_kind(self) -> FaultKind:
        """Each kind once in every round: none is forgotten in a short run."""
        if not self._left:
            self._left = list(self._kinds)
        return self._left.pop(self._random.randrange(len(self._left)))

    async def heal(self) -> None:
        for weather in self._weathers:
            weather.calm()
        for node in self._nodes:
            node.resume()
            await node.start()
        for proxy in self._proxies:
            await proxy.until_passed()
        self._history.note(PROCESS, "everything is healed")

    async def _strike(self, kind: FaultKind) -> None:
        self.dealt[kind] += 1
        if kind is FaultKind.KILL:
            await self._kill()
        elif kind is FaultKind.PAUSE:
            await self._pause()
        else:
            await self._storm(kind)

    async def _kill(self) -> None:
        node = self._random.choice(self._nodes)
        await self._kill_node(node, self._random.uniform(*DOWN_S), node.name)

    async def _kill_node(self, node: AttackedNode, down_s: float, name: str) -> None:
        """Half of the nodes die with answers that their clients have not got."""
        random = self._random
        is_silent = random.random() < 0.5
        note = self._begin(f"kill {name}{' with answers unsent' if is_silent else ''}, down for {down_s:.2f} s")
        if is_silent:
            for weather in self._weathers:
                weather.swallows_answers = True
            await asyncio.sleep(random.uniform(*SILENCE_S))
        await node.kill()
        for weather in self._weathers:
            weather.swallows_answers = False
        await asyncio.sleep(down_s)
        await node.start()
        self._history.ok(note)

    async def _pause(self) -> None:
        node = self._random.choice(self._nodes)
        await self._pause_node(node, self._random.uniform(*PAUSE_S), node.name)

    async def _pause_node(self, node: AttackedNode, pause_s: float, name: str) -> None:
        note = self._begin(f"pause {name} for {pause_s:.2f} s")
        node.pause()
        try:
            await asyncio.sleep(pause_s)
        finally:
            node.resume()
        self._history.ok(note)

    async def _storm(self, kind: FaultKind) -> None:
        random = self._random
        storm_s = random.uniform(*STORM_S)
        chance = random.uniform(*(CUT_CHANCE if kind is FaultKind.CUT else DELAY_CHANCE))
        note = self._begin(f"{kind.value} {chance:.0%} of requests for {storm_s:.2f} s")
        for weather in self._weathers:
            if kind is FaultKind.CUT:
                weather.cut_chance = chance
            else:
                weather.delay_chance = chance
        try:
            await asyncio.sleep(storm_s)
        finally:
            for weather in self._weathers:
                weather.calm()
        self._history.ok(note)

    def _begin(self, text: str) -> Note:
        return self._history.begin(Note(process=PROCESS, text=text))
