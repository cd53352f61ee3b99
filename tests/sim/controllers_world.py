"""Controllers alone in a simulated world, by a seed: they elect one of them, which gives out producer ids, while they
are killed, lose power, stand still and are cut off from each other.

It is a small world, so that many seeds can be tried: judged are the rules of `sim/world/quorum_rules.py`, that no id is
given out twice, that none that was given out is forgotten, and that there is an active controller when all is healed.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

from semel.broker.identity import Identity, new_id, write_identity
from semel.log.errors import Refused
from semel.sim.host import SimWorld
from semel.sim.loop import Deadlock, SimLoop, TooManyTurns, TooMuchVirtualTime, run
from semel.sim.world.findings import Findings
from semel.sim.world.node import ROOT, SimulatedNode
from semel.sim.world.nodes import CONTROLLER_PORT, LED_S, name_of
from semel.sim.world.quorum_rules import compare_images, is_led
from semel.sim.world.watching import observed
from semel.wire.errors import ErrorCode

ASK_S = 3.0
BACK_S = 30.0
SNAPSHOT_AFTER_BYTES = 1500


def settings_of(number: int, voters: int) -> dict[str, str]:
    address = f"CONTROLLER://{name_of(number)}:{CONTROLLER_PORT}"
    return {
        "node.id": str(number),
        "process.roles": "controller",
        "listeners": f"CONTROLLER://:{CONTROLLER_PORT}",
        "advertised.listeners": address,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{one}@{name_of(one)}:{CONTROLLER_PORT}" for one in range(1, voters + 1)),
    }


class _World:
    def __init__(self, loop: SimLoop, seed: int, voters: int, findings: Findings) -> None:
        self.world = SimWorld(loop, seed)
        self.random = self.world.random("faults")
        self.findings = findings
        self.given: list[range] = []
        self.nodes = [
            SimulatedNode(self.world, settings_of(number, voters), findings, self._is_up, name_of(number))
            for number in range(1, voters + 1)
        ]
        cluster_id = new_id(Random(seed))
        for number, node in enumerate(self.nodes, 1):
            node.disk.make_dirs(ROOT)
            write_identity(node.disk, ROOT, Identity(cluster_id, number, new_id(Random(number))))
            node.disk.sync_parents_now(ROOT)

    def _is_up(self, broker: object) -> None:
        broker.metadata.snapshot_after_bytes = SNAPSHOT_AFTER_BYTES  # type: ignore[attr-defined]

    # -- clients

    async def allocate(self, random: Random) -> None:
        """Asks any of them, again and again; those that are not active say so."""
        while True:
            await asyncio.sleep(random.uniform(0.001, 0.1))
            node = random.choice(self.nodes)
            part = node.broker.controller_part if node.is_up else None
            if part is None:
                continue
            try:
                async with asyncio.timeout(ASK_S):
                    block = await part.channel.allocate_producer_ids()
            except TimeoutError:
                continue
            except Refused as refusal:
                if refusal.code != ErrorCode.NOT_CONTROLLER:
                    self.findings.wrong("refused", refusal.text)
                continue
            self.findings.saw("producer ids given out")
            self.given.append(block)

    # -- faults

    async def strike(self, seconds: float) -> None:
        loop, random, wires = asyncio.get_running_loop(), self.random, self.world.wires
        until_s = loop.time() + seconds
        while loop.time() < until_s:
            await asyncio.sleep(random.choice([0.01, 0.3, 1.0, 3.0]) * random.random() * 2)
            node = random.choice(self.nodes)
            leading = [one for one in self.nodes if one.is_up and is_led([one.broker])]
            if leading and random.random() < 0.5:
                node = random.choice(leading)
            others = [one.name for one in self.nodes if one is not node]
            length_s = random.choice([0.05, 0.5, 2.0, 6.0, 12.0]) * random.random()
            kind = random.randrange(7)
            if kind == 0 and node.is_up:
                node.kill(length_s)
            elif kind == 1 and node.is_up:
                node.lose_power(length_s)
            elif kind == 2 and random.random() < 0.3:
                for one in self.nodes:
                    if one.is_up:
                        one.lose_power(length_s / 4)
            elif kind == 3:
                some = others[: random.randrange(1, len(others) + 1)]
                wires.part([node.name], some)
                loop.call_later(length_s, wires.rejoin, [node.name], some)
            elif kind == 4:
                wires.part_one_way([node.name], others)
                loop.call_later(length_s, wires.rejoin, [node.name], others)
            elif kind == 5 and node.is_up:
                owner = node.owner
                self.world.loop.freeze(owner)
                loop.call_later(length_s, self.world.loop.thaw, owner)
            elif kind == 6 and node.is_up:
                await node.restart()
        await asyncio.sleep(12.0)  # all of them are over

    async def whole(self, seconds: float) -> None:
        for node in self.nodes:
            await node.open()
        clients = [asyncio.create_task(self.allocate(self.world.random(f"client {number}"))) for number in range(3)]
        await self.strike(seconds)
        for node in self.nodes:
            await self._until(lambda node=node: node.is_up, BACK_S, f"{node.name} is not up")  # type: ignore[misc]
        await self._until(lambda: is_led([node.broker for node in self.nodes if node.is_up]), LED_S, "no controller")
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await self._until(
            lambda: (
                all(node.is_up for node in self.nodes)
                and compare_images([node.broker for node in self.nodes], self.findings)
            ),
            LED_S,
            "metadata lag",
        )
        self.check()
        for node in self.nodes:
            await node.close()

    async def _until(self, is_so: object, within_s: float, wrong: str) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while not is_so():  # type: ignore[operator]
            if loop.time() > until_s:
                self.findings.wrong(wrong, f"{within_s:g} s after the last fault")
                return
            await asyncio.sleep(0.05)

    def check(self) -> None:
        given = sorted(self.given, key=lambda block: block.start)
        for one, other in pairwise(given):
            if other.start < one.stop:
                self.findings.wrong("producer ids given out twice", f"{one} and {other}")
        for node in (one for one in self.nodes if one.is_up):
            upto = node.broker.metadata.committed.producer_ids.next_producer_id
            if given and upto < given[-1].stop:
                self.findings.wrong("producer ids forgotten", f"{given[-1]} were given, {node.name} knows {upto}")


def try_seed(seed: int, voters: int = 3, seconds: float = 30.0) -> Findings:
    loop = SimLoop(end_s=1000.0, max_turns=400_000)
    findings = Findings(loop.time)
    world = _World(loop, seed, voters, findings)
    with observed(findings):
        try:
            run(world.whole(seconds), loop=loop)
        except (Deadlock, TooMuchVirtualTime, TooManyTurns) as error:
            findings.wrong("stuck", str(error))
    return findings
