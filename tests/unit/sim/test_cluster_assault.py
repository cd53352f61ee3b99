"""An attack on several nodes, without nodes and without time passing: one fault at a time, and all of it heals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from semel.sim.attack.assault import FaultKind
from semel.sim.attack.cluster_assault import ClusterAssault
from semel.sim.attack.cluster_faults import Members
from semel.sim.history import History
from semel.sim.judging.report import judge
from semel.sim.loop import run


class FakeCluster:
    """Notes how many nodes are down, paused or cut off at the same time."""

    def __init__(self, missing: str = "") -> None:
        self.members = Members((1, 2, 3), (3000,))
        self.nodes = {node_id: FakeNode(self, node_id) for node_id in (1, 2, 3, 3000)}
        self.met: set[int] = set()
        self.cuts: set[tuple[int, int]] = set()
        self.seen: set[str] = set()
        self._missing = missing

    def meet(self, node_id: int, what: str) -> None:
        assert not self.met, "one at a time"
        assert not self.cuts, "one at a time"
        self.met.add(node_id)
        self.seen.add(what)

    def cut(self, pairs: Sequence[tuple[int, int]]) -> None:
        assert not self.met, "one at a time"
        assert not self.cuts, "one at a time"
        self.cuts.update(pairs)
        self.seen.add("cut")

    def heal(self) -> None:
        self.cuts.clear()

    async def leaders(self) -> dict[str, int]:
        return {"records-0": 2}

    async def until_in_sync(self, timeout_s: float) -> str:
        if self._missing:
            await asyncio.sleep(timeout_s)
        return self._missing


class FakeNode:
    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.name = f"node {node_id}"
        self._cluster, self._node_id = cluster, node_id

    async def kill(self) -> None:
        self._cluster.meet(self._node_id, "kill")

    async def start(self) -> None:
        self._cluster.met.discard(self._node_id)

    def pause(self) -> None:
        self._cluster.meet(self._node_id, "pause")

    def resume(self) -> None:
        self._cluster.met.discard(self._node_id)


def attacked_for(
    seconds: float, kinds: list[FaultKind], missing: str = ""
) -> tuple[FakeCluster, ClusterAssault, History]:
    cluster, history = FakeCluster(missing), History()
    assault = ClusterAssault(kinds, cluster, [], random.Random(3), history)  # type: ignore[arg-type]

    async def attack() -> None:
        work = asyncio.get_running_loop().create_task(assault.run())
        await asyncio.sleep(seconds)
        work.cancel()
        (ended,) = await asyncio.gather(work, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError)
        await assault.heal()

    run(attack())
    return cluster, assault, history


@pytest.mark.parametrize("seconds", [3.0, 7.1, 300.0])
def test_one_fault_is_over_before_the_next_begins_and_all_of_them_heal(seconds: float) -> None:
    cluster, assault, history = attacked_for(seconds, [FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT])
    assert not cluster.met
    assert not cluster.cuts
    assert sum(assault.struck.values()) in (sum(assault.dealt.values()), sum(assault.dealt.values()) - 1)
    assert judge(history).is_clean
    if seconds > 100:
        assert cluster.seen == {"kill", "pause", "cut"}
        assert {"kill leader", "kill controller", "pause leader", "cut clients"} <= set(assault.struck)


def test_replicas_that_do_not_come_back_in_sync_are_a_finding() -> None:
    _, _, history = attacked_for(10.0, [FaultKind.KILL], missing="records-0 has replicas [1, 2, 3] and in sync [1, 2]")
    report = judge(history)
    assert not report.is_clean
    assert "in sync [1, 2]" in next(iter(report.findings.values())).first
