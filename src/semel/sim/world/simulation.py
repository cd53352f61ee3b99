"""One run of the simulated world: everything is made from a schedule, runs in virtual time, and is judged.

First the safety phase, in which strikes happen; then everything heals, and every transaction has to end, every group
to settle, every reader to get to the end, in bounded virtual time. Then the node stops, and its files are checked.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any

from semel.sim.attack.fault_answers import FIRST_GENERATION_HIDDEN, FIRST_GENERATION_LIMITS
from semel.sim.attack.fault_proxy import FaultProxy
from semel.sim.history import History
from semel.sim.host import SimWorld
from semel.sim.judging.anomalies import Kind
from semel.sim.judging.report import anomalies
from semel.sim.loop import Deadlock, SimLoop, TooManyTurns, TooMuchVirtualTime, run
from semel.sim.power import PowerLost
from semel.sim.workload.access import FIRST_GENERATION, SECOND_GENERATION, Access
from semel.sim.world.afterwards import Truth, check_files, check_idle, check_logs
from semel.sim.world.crowd import Crowd, Machines
from semel.sim.world.decay import check_served, flip_bits
from semel.sim.world.doubling_weather import DoublingWeather
from semel.sim.world.findings import Event, Findings, Violation
from semel.sim.world.node import BROKER, CLEAN_REFUSALS, PORT, ROOT, SimulatedNode
from semel.sim.world.nodes import Nodes
from semel.sim.world.schedule import Schedule, StrikeKind
from semel.sim.world.side_topics import SideTopics
from semel.sim.world.strikes import Strikes
from semel.sim.world.watching import observed

ROUNDS_MS = (0.0, 0.5, 2.0, 5.0)
END_S = 3600.0 * 24
MAX_TURNS = 250_000
"""Of the loop, for each node, and again for what they say to each other; most runs take some ten thousand."""
IDLE_S = 8.0
"""After the last client has gone: all that waits for a client has given it up by then."""


@dataclass(frozen=True)
class Run:
    schedule: Schedule
    history: History
    events: list[Event]
    violations: list[Violation]
    coverage: dict[str, int]
    virtual_s: float

    def digest(self) -> str:
        """Of all that was seen: the same schedule gives the same, in every process."""
        content = hashlib.sha256("\n".join(self.history.lines()).encode())
        for event in self.events:
            content.update(repr(event).encode())
        return content.hexdigest()


def simulate(schedule: Schedule) -> Run:
    simulation = _Simulation(schedule)
    simulation.run()
    findings = simulation.findings
    return Run(
        schedule,
        simulation.history,
        findings.events,
        findings.violations,
        dict(findings.coverage),
        simulation.loop.time(),
    )


class _Simulation:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.loop = SimLoop(end_s=END_S, max_turns=MAX_TURNS * (2 * schedule.nodes - 1))
        self.loop.set_exception_handler(self._note_exception)
        self.findings = Findings(self.loop.time)
        self.history = History(lambda: round(self.loop.time() * 1000))
        self.world = SimWorld(self.loop, schedule.seed)
        # How long a node may not look: what several clients send meanwhile is served in one round.
        self.world.wires.round_ms = self.world.random("rounds").choice(ROUNDS_MS)
        self._proxies: list[FaultProxy] = []

    def run(self) -> None:
        with observed(self.findings):
            try:
                run(self._whole(), loop=self.loop)
            except (Deadlock, TooMuchVirtualTime, TooManyTurns) as error:
                self.findings.wrong("stuck", str(error))
            except (Exception, PowerLost) as error:
                self.findings.wrong("client failed", f"{type(error).__name__}: {error}")
        for what in self.world.wires.rounds_seen:
            self.findings.saw(f"round: {what}")
        # Readers that could not go on until the bits were mended; who cannot afterwards does not get to the end.
        flips = any(strike.kind is StrikeKind.BIT_FLIP for strike in self.schedule.strikes)
        for anomaly in anomalies(self.history):
            if not anomaly.is_allowed and not (flips and anomaly.kind is Kind.UNREADABLE):
                self.findings.wrong(anomaly.kind.value, anomaly.text)

    def _note_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, PowerLost):
            self.findings.wrong("unexpected error", f"{context.get('message')}: {type(error).__name__}: {error}")

    async def _whole(self) -> None:
        schedule, findings = self.schedule, self.findings
        nodes = Nodes(self.world, schedule.nodes, schedule.settings, findings, schedule.voters)
        await nodes.open()
        machines = Machines(self.world)
        weathers: list[DoublingWeather] = []
        addresses = {SECOND_GENERATION: ",".join(f"{node.name}:{PORT}" for node in nodes.all)}
        if schedule.is_proxied:
            for generation in (FIRST_GENERATION, SECOND_GENERATION):
                weathers.append(DoublingWeather(self.world.random(f"weather {generation}")))
                addresses[generation] = await self._proxied(generation, weathers[-1], machines)
        access = Access(self.history, machines.host, addresses, self.world.random, name="sim", load=schedule.load)
        side = SideTopics(access, findings) if schedule.has_keys else None
        if side is not None:
            await side.create()
        strikes = Strikes(schedule.strikes, self.world, nodes, machines, weathers, self._proxies, findings)
        crowd = strikes.crowd = Crowd(access, machines, side)
        await crowd.run(schedule.seconds, attack=strikes.run, heal=strikes.heal)
        for proxy in self._proxies:
            proxy.check()
            await proxy.close()
        nodes.look_no_more()
        await asyncio.sleep(IDLE_S)
        await self._end(nodes, crowd.topics)

    async def _proxied(self, generation: int, weather: DoublingWeather, machines: Machines) -> str:
        name = f"proxy{generation}"
        is_first = generation == FIRST_GENERATION
        proxy = FaultProxy(
            self.world.host(name),
            weather,
            name=name,
            version_limits=FIRST_GENERATION_LIMITS if is_first else None,
            hidden_features=FIRST_GENERATION_HIDDEN if is_first else (),
        )
        machines.proxies.append(name)
        self._proxies.append(proxy)
        return await proxy.open(BROKER, PORT)

    async def _end(self, nodes: Nodes, topics: list[str]) -> None:
        findings = self.findings
        await nodes.until_up()
        for watch in nodes.watches():
            watch.stop()  # not before: a node that has ended itself meanwhile is followed from its start on
        for node in nodes.all:
            check_idle(node.broker, findings)
        await nodes.until_replicated()
        truth = check_logs(nodes.logs(), self.history, topics, findings)
        for node in nodes.all:
            await node.restart()
        await nodes.until_up()
        for watch in nodes.watches():
            watch.stop()
        for node in nodes.all:
            if not await node.stop():
                findings.wrong("stuck", "the node does not stop")
            check_files(node.disk, ROOT, findings)
            await node.close()
        if self.schedule.decays and not findings.violations:
            await self._decay(nodes.first, truth)

    async def _decay(self, node: SimulatedNode, truth: Truth) -> None:
        flip_bits(node.disk, self.world.random("decay"), self.findings)
        error = await node.start_alone()
        if error is None:
            check_served(node.broker, truth, self.findings)
        elif not isinstance(error, CLEAN_REFUSALS):
            self.findings.wrong("falls over damage", f"{type(error).__name__}: {error}")
        else:
            self.findings.note(node.name, f"does not start: {error}")
        await node.close()
