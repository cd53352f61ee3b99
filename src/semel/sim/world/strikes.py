"""Carries out the strikes of a schedule, and heals everything in the end."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Literal

from semel.sim.attack.fault_proxy import FaultProxy
from semel.sim.clock import SimClock
from semel.sim.disk import Kind, When
from semel.sim.host import SimWorld
from semel.sim.world.among_nodes import StrikesAmongNodes, down_s, struck
from semel.sim.world.crowd import Crowd, Machines
from semel.sim.world.decay import Rot
from semel.sim.world.doubling_weather import DoublingWeather
from semel.sim.world.findings import Findings
from semel.sim.world.node import Death, SimulatedNode
from semel.sim.world.nodes import Nodes
from semel.sim.world.schedule import Strike, StrikeKind

WHO = "strike"
CALLS_AHEAD = 150
SENDS_AHEAD = 60
RELAPSE_CALLS = 60
WHEN: tuple[When, ...] = ("before", "during", "after")
SEND_WHEN: tuple[Literal["before", "after"], ...] = ("before", "after")
FORWARD_MS = (900, 20_000, 600_000, 3 * 3_600_000)
BACK_MS = (500, 10_000, 1_500_000)
DAYS_MS = 10 * 24 * 3_600_000
"""In one of four cases a clock jumps that far: further than whatever it is held against lasts."""
DRIFT_PPM = (-50_000.0, 50_000.0)
USUAL_LATENCY_MS = (0.1, 1.0)
SLOW_LATENCY_MS = (5.0, 400.0)
USUAL_FLUSH_MS = (0.1, 2.0)
SLOW_FLUSH_MS = (1.0, 300.0)
COLD_CHANCE = 0.7
WORKERS_FIRST = 0.8
CALLS_OF_CLIENT = 12


class Strikes:
    def __init__(
        self,
        strikes: Sequence[Strike],
        world: SimWorld,
        nodes: Nodes,
        machines: Machines,
        weathers: Sequence[DoublingWeather],
        proxies: Sequence[FaultProxy],
        findings: Findings,
    ) -> None:
        self._strikes = strikes
        self._world = world
        self._nodes = nodes
        self._machines = machines
        self._weathers = list(weathers)
        self._proxies = list(proxies)
        self._findings = findings
        self._lasting: list[asyncio.Task[None]] = []
        self._restarts: list[asyncio.Task[Any]] = []
        self._frozen: set[str] = set()
        self._rots = {node.name: Rot(node) for node in nodes.all}
        self.crowd: Crowd | None = None
        """To be set before it runs."""
        self._deal: dict[StrikeKind, Callable[[Strike], None]] = {
            StrikeKind.KILL: self._kill,
            StrikeKind.POWER_CUT: self._cut_power,
            StrikeKind.KILL_AT_CALL: self._die_at_call,
            StrikeKind.POWER_CUT_AT_CALL: self._die_at_call,
            StrikeKind.KILL_AT_SEND: self._die_at_send,
            StrikeKind.POWER_CUT_AT_SEND: self._die_at_send,
            StrikeKind.RESTART: self._restart,
            StrikeKind.CUT: self._cut,
            StrikeKind.FLAKY: self._make_flaky,
            StrikeKind.HALF_OPEN: self._half_open,
            StrikeKind.PART: self._part,
            StrikeKind.PART_CLIENT: self._part_client,
            StrikeKind.SLOW: self._slow_down,
            StrikeKind.WEATHER_CUT: self._change_weather,
            StrikeKind.WEATHER_DELAY: self._change_weather,
            StrikeKind.LOST_ANSWERS: self._change_weather,
            StrikeKind.DUPLICATES: self._change_weather,
            StrikeKind.OVERTAKEN: self._change_weather,
            StrikeKind.DISK_FULL: self._fill_disk,
            StrikeKind.WRITE_ERROR: self._fail_disk,
            StrikeKind.READ_ERROR: self._fail_disk,
            StrikeKind.FLUSH_ERROR: self._fail_disk,
            StrikeKind.SLOW_DISK: self._slow_disk,
            StrikeKind.COLD_CACHE: self._cool_cache,
            StrikeKind.CLOCK_FORWARD: self._jump_clock,
            StrikeKind.CLOCK_BACK: self._jump_clock,
            StrikeKind.CLOCK_DRIFT: self._drift,
            StrikeKind.CLIENT_CRASH: self._crash_client,
            StrikeKind.CLIENT_FREEZE: self._freeze_client,
            StrikeKind.NODE_FREEZE: self._freeze_node,
            StrikeKind.BIT_FLIP: self._flip_bit,
            **StrikesAmongNodes(world.wires, nodes, self._tell, self._afterwards).deal,
        }

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for strike in self._strikes:
            await asyncio.sleep(max(0.0, began_s + strike.at_s - loop.time()))
            self._deal[strike.kind](strike)

    async def heal(self) -> None:
        for task in self._lasting:
            task.cancel()
        await asyncio.gather(*self._lasting, return_exceptions=True)
        self._lasting.clear()
        self._world.wires.at_no_call()
        for owner in sorted(self._frozen):
            self._thaw(owner)
        for weather in self._weathers:
            weather.calm()
        self._mend_network()
        for node in self._nodes.all:
            self._mend_disk(node)
            self._mend_bits(node)
            node.disk.crash_at(0)
            self._world.wires.disarm(node.name)
        await asyncio.gather(*self._restarts)
        await self._nodes.end_clones()
        for node in self._nodes.all:
            await node.until_up()
            if node.may_fail and node.lacks_partitions:
                self._findings.note(WHO, "some partitions could not be opened: the node is started again")
                node.kill(0.0)
                await node.until_up()
        for proxy in self._proxies:
            await proxy.until_passed()
        self._findings.note(WHO, "everything is healed")

    def _tell(self, strike: Strike, text: str) -> None:
        self._findings.saw(f"fault: {strike.kind.value}")
        self._findings.note(WHO, f"{strike.number}: {text}")

    def _afterwards(self, strike: Strike, undo: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(strike.length_s)
            undo()

        self._lasting.append(asyncio.get_running_loop().create_task(wait()))

    def _struck(self, strike: Strike) -> SimulatedNode:
        return struck(strike, self._nodes.all)

    # -- deaths of a node

    def _relapse(self, strike: Strike) -> int:
        """In one of four cases the next start dies too."""
        return 1 + strike.pick // 4 % RELAPSE_CALLS if strike.pick % 4 == 0 else 0

    def _kill(self, strike: Strike) -> None:
        node = self._struck(strike)
        if node.is_up:
            self._tell(strike, "kill -9")
            node.kill(down_s(strike), self._relapse(strike))

    def _cut_power(self, strike: Strike) -> None:
        node = self._struck(strike)
        if node.is_up:
            self._tell(strike, "power cut")
            node.lose_power(down_s(strike), self._relapse(strike))

    def _die_at_call(self, strike: Strike) -> None:
        node = self._struck(strike)
        if not node.is_up:
            return
        power = strike.kind is StrikeKind.POWER_CUT_AT_CALL
        when, call = WHEN[strike.pick % 3], 1 + int(strike.share * CALLS_AHEAD)
        self._tell(strike, f"{'power cut' if power else 'kill -9'} {when} disk call {call} from now")
        node.next_death = Death(power, down_s(strike), relapse_call=self._relapse(strike))
        self._world.crash_at(node.name, call, when, power=power)

    def _die_at_send(self, strike: Strike) -> None:
        node = self._struck(strike)
        if not node.is_up:
            return
        power = strike.kind is StrikeKind.POWER_CUT_AT_SEND
        when, nth = SEND_WHEN[strike.pick % 2], 1 + int(strike.share * SENDS_AHEAD)
        self._tell(strike, f"{'power cut' if power else 'kill -9'} {when} send {nth} from now")
        node.next_death = Death(power, down_s(strike), relapse_call=self._relapse(strike))
        self._world.crash_at_send(node.name, nth, when, power=power)

    def _restart(self, strike: Strike) -> None:
        node = self._struck(strike)
        if node.is_up:
            self._tell(strike, "clean stop and start")
            self._restarts.append(asyncio.get_running_loop().create_task(node.restart()))

    # -- the network

    def _cut(self, strike: Strike) -> None:
        links = self._world.wires.links(self._struck(strike).name)
        count = 1 + int(strike.share * len(links))
        self._tell(strike, f"{min(count, len(links))} of {len(links)} connections are cut")
        for number in range(min(count, len(links))):
            self._world.wires.cut(links[(strike.pick + number) % len(links)])

    def _make_flaky(self, strike: Strike) -> None:
        self._tell(strike, f"connections are cut at random for {strike.length_s:.2f} s")
        self._world.wires.cut_chance = 0.002 + 0.05 * strike.share
        self._afterwards(strike, self._mend_network)

    def _half_open(self, strike: Strike) -> None:
        """On one side, on the other, or on both."""
        links = self._world.wires.links(self._struck(strike).name)
        count = 1 + int(strike.share * 0.7 * len(links))
        self._tell(strike, f"{min(count, len(links))} of {len(links)} connections fall silent")
        for number in range(min(count, len(links))):
            link = links[(strike.pick + number) % len(links)]
            if strike.pick % 3 != 1:
                self._world.wires.silence(link)
            if strike.pick % 3 != 0:
                self._world.wires.silence(link.other_end)

    def _part(self, strike: Strike) -> None:
        node = self._struck(strike)
        self._tell(strike, f"the node is cut off for {strike.length_s:.2f} s")
        self._world.wires.part([node.name], [*self._machines.names, *self._machines.proxies, *self._nodes.names])
        self._afterwards(strike, self._world.wires.heal)

    def _part_client(self, strike: Strike) -> None:
        assert self.crowd is not None
        if self.crowd.mortals:
            client = self.crowd.mortals[strike.pick % len(self.crowd.mortals)]
            self._tell(strike, f"{client} is cut off for {strike.length_s:.2f} s")
            self._world.wires.part([*self._nodes.names, *self._machines.proxies], self.crowd.machines_of(client))
            self._afterwards(strike, self._world.wires.heal)

    def _slow_down(self, strike: Strike) -> None:
        self._tell(strike, f"the network is slow for {strike.length_s:.2f} s")
        least, most = SLOW_LATENCY_MS
        self._world.wires.latency_ms = (least * strike.share, most * strike.share)
        self._afterwards(strike, self._mend_network)

    def _mend_network(self) -> None:
        self._world.wires.heal()
        self._world.wires.cut_chance = 0.0
        self._world.wires.latency_ms = USUAL_LATENCY_MS

    def _change_weather(self, strike: Strike) -> None:
        weather = self._weathers[strike.pick % len(self._weathers)]
        # Who asks again has to come through, or nobody goes on.
        chance = 0.04 + 0.15 * strike.share if strike.kind is StrikeKind.OVERTAKEN else 0.02 + 0.4 * strike.share
        self._tell(strike, f"{strike.kind.value}, {chance:.0%} of them, for {strike.length_s:.2f} s")
        if strike.kind is StrikeKind.WEATHER_CUT:
            weather.cut_chance = chance
        elif strike.kind is StrikeKind.WEATHER_DELAY:
            weather.delay_chance = chance
        elif strike.kind is StrikeKind.LOST_ANSWERS:
            weather.swallows_answers = True
        elif strike.kind is StrikeKind.OVERTAKEN:
            weather.late_chance = chance
        else:
            weather.duplicate_chance = chance
        self._afterwards(strike, weather.calm)

    # -- the disk

    def _fill_disk(self, strike: Strike) -> None:
        node, room = self._struck(strike), int(strike.share * 3_000)
        self._tell(strike, f"the disk is full after {room} bytes, for {strike.length_s:.2f} s")
        node.may_fail = True
        node.disk.fill_after(room)
        self._afterwards(strike, lambda: self._mend_disk(node))

    def _fail_disk(self, strike: Strike) -> None:
        kinds: dict[StrikeKind, tuple[Kind, ...]] = {
            StrikeKind.WRITE_ERROR: ("write", "create", "rename", "truncate", "remove", "mkdir"),
            StrikeKind.READ_ERROR: ("read",),
            StrikeKind.FLUSH_ERROR: ("flush", "sync_dir"),
        }
        possible = kinds[strike.kind]
        kind = possible[0] if strike.share < 0.7 else possible[strike.pick % len(possible)]
        nth, times = 1 + strike.pick % 20, 1 + strike.pick // 20 % 4
        node = self._struck(strike)
        node.may_fail = True
        if kind == "truncate":
            # Something is cut back after a write that has failed, and hardly ever else.
            self._tell(strike, f"the disk fails at write {nth} from now, {times} times, and at what is cut back then")
            node.disk.fail_at("write", nth, times=times)
            node.disk.fail_at("truncate", times=times)
        else:
            self._tell(strike, f"the disk fails at {kind} {nth} from now, {times} times")
            node.disk.fail_at(kind, nth, times=times)

    def _flip_bit(self, strike: Strike) -> None:
        """And somebody reads it."""
        assert self.crowd is not None
        node = self._struck(strike)
        path = self._rots[node.name].flip(strike.pick, strike.share) if node.is_up else ""
        if path:
            self._tell(strike, f"a bit of {path} flips, for {strike.length_s:.2f} s")
            node.may_fail = True
            self.crowd.read_from_the_start()
            self._afterwards(strike, lambda: self._mend_bits(node))

    def _mend_bits(self, node: SimulatedNode) -> None:
        """A node that has put something aside takes it up again at its next start."""
        if self._rots[node.name].mend() and node.is_up:
            self._findings.note(WHO, "the bits are mended, and the node is started again")
            node.kill(0.0)

    def _slow_disk(self, strike: Strike) -> None:
        node = self._struck(strike)
        self._tell(strike, f"the disk is slow for {strike.length_s:.2f} s")
        least, most = SLOW_FLUSH_MS
        node.disk.flush_latency_ms = (least * strike.share, most * strike.share)
        self._afterwards(strike, lambda: self._hurry_disk(node))

    def _cool_cache(self, strike: Strike) -> None:
        node = self._struck(strike)
        self._tell(strike, f"the page cache is cold for {strike.length_s:.2f} s")
        node.disk.cold_chance = COLD_CHANCE
        self._afterwards(strike, lambda: self._hurry_disk(node))

    def _hurry_disk(self, node: SimulatedNode) -> None:
        node.disk.flush_latency_ms = USUAL_FLUSH_MS
        node.disk.cold_chance = 0.0

    def _mend_disk(self, node: SimulatedNode) -> None:
        node.disk.mend()
        self._hurry_disk(node)

    # -- clocks and clients

    def _clock(self, strike: Strike) -> tuple[str, SimClock]:
        """That of the node, or that of a client."""
        broker = self._struck(strike).name
        machines = [broker, *(name for name in self._machines.names if name in self._world.clocks)]
        name = broker if strike.pick % 2 else machines[strike.pick // 2 % len(machines)]
        return name, self._world.clocks[name]

    def _jump_clock(self, strike: Strike) -> None:
        name, clock = self._clock(strike)
        is_forward = strike.kind is StrikeKind.CLOCK_FORWARD
        choices = FORWARD_MS if is_forward else BACK_MS
        by_ms = DAYS_MS if strike.pick // 64 % 4 == 0 else choices[int(strike.share * len(choices))]
        self._tell(strike, f"the clock of {name} jumps {'forward' if is_forward else 'back'} by {by_ms} ms")
        clock.jump_wall(by_ms if is_forward else -by_ms)

    def _drift(self, strike: Strike) -> None:
        name, clock = self._clock(strike)
        self._tell(strike, f"the clock of {name} drifts")
        clock.drift(DRIFT_PPM[strike.pick % 2] * strike.share)

    def _crash_client(self, strike: Strike) -> None:
        assert self.crowd is not None
        if self.crowd.mortals:
            client = self.crowd.mortals[strike.pick % len(self.crowd.mortals)]
            self._at_call_or_now(client, strike, "dies", lambda: self._end_client(client, strike))

    def _end_client(self, client: str, strike: Strike) -> None:
        assert self.crowd is not None
        if client in self.crowd.mortals:
            self._tell(strike, f"{client} dies")
            self.crowd.kill(client)

    def _at_call_or_now(self, client: str, strike: Strike, what: str, act: Callable[[], None]) -> None:
        """At once, or around one of its next calls to the network: in the middle of a transaction, say."""
        assert self.crowd is not None
        # A worker's producer has its machine from before its consumer's.
        machines = self.crowd.machines_of(client)[-2:]
        if not machines or strike.pick // 64 % 4 == 0:
            act()
            return
        nth, ours = 1 + strike.pick // 8 % CALLS_OF_CLIENT, contextvars.copy_context()
        self._findings.note(WHO, f"{strike.number}: {client} {what} at call {nth} of {machines[0]} from now")
        # Not in the client's own context: what is started then would be its own.
        self._world.wires.at_call(machines[0], nth, lambda: ours.run(act))

    def _freeze_client(self, strike: Strike) -> None:
        """Workers of pipelines first."""
        assert self.crowd is not None
        mortals = self.crowd.mortals
        workers = [name for name in mortals if name in self.crowd.workers]
        among = workers if workers and strike.share < WORKERS_FIRST else mortals
        if not among:
            return
        client = among[strike.pick % len(among)]
        owner = self.crowd.owner_of(client)
        self._at_call_or_now(client, strike, "freezes", lambda: self._freeze(owner, strike, client))

    def _freeze_node(self, strike: Strike) -> None:
        node = self._struck(strike)
        if node.is_up:
            self._freeze(node.owner, strike, node.name)

    def _freeze(self, owner: str, strike: Strike, name: str) -> None:
        self._tell(strike, f"{name} freezes for {strike.length_s:.2f} s")
        self._world.loop.freeze(owner)
        self._frozen.add(owner)
        self._afterwards(strike, lambda: self._thaw(owner))

    def _thaw(self, owner: str) -> None:
        if owner in self._frozen:
            self._frozen.discard(owner)
            self._findings.note(WHO, f"{owner} goes on")
            self._world.loop.thaw(owner)
