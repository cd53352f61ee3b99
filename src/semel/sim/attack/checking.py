"""A whole check on real machines, from plan to judgement. Who shows it, watches `phase`, `counts` and `dealt`."""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semel.client.errors import SemelError
from semel.host.api import Host
from semel.sim.attack.assault import Assault, FaultKind
from semel.sim.attack.campaign import Campaign
from semel.sim.attack.local_node import SERVE
from semel.sim.history import History
from semel.sim.judging.anomalies import Kind
from semel.sim.judging.report import Report, judge
from semel.sim.workload.access import Access, Load
from semel.sim.workload.run import Workload
from semel.sim.workload.semantics import Semantics, Tally, Way
from semel.sim.workload.stage import Stage

logger = logging.getLogger("semel.check")

_CLEANING_S = 60.0
"""Also after Ctrl-C."""


@dataclass(frozen=True)
class Plan:
    """`ways` chooses the comparison of semantics in place of the whole workload. `is_local`: nodes of our own are
    started; else the cluster is the one at `bootstrap`, reached with `settings`."""

    name: str
    seed: int
    seconds: float
    kinds: Sequence[FaultKind] = ()
    ways: Sequence[Way] = ()
    bootstrap: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_local: bool = False
    node_count: int = 1
    """Of nodes of our own: with more than one there is a controller beside them."""
    node_command: Sequence[str] = SERVE
    allowed: frozenset[Kind] = frozenset()
    load: Load = field(default_factory=Load)

    @property
    def is_encrypted(self) -> bool:
        return str(self.settings.get("security_protocol", "PLAINTEXT")).upper().endswith("SSL")


class Check:
    """`local_root` is where nodes of our own keep their data."""

    def __init__(self, host: Host, plan: Plan, local_root: Path | None = None) -> None:
        self.plan = plan
        self.local_root = local_root
        began_ms = host.clock.monotonic_ms()
        self.history = History(lambda: host.clock.monotonic_ms() - began_ms)
        self.counts: Counter[str] = Counter()
        self.generations: list[int] = []
        self.directories: list[Path] = []
        """Of the nodes of a cluster of our own, when they have stopped after the work."""
        self._host = host
        self._stage: Stage | None = None
        self._assault: Assault | None = None

    @property
    def phase(self) -> str:
        return "starting" if self._stage is None else self._stage.phase

    @property
    def dealt(self) -> Counter[FaultKind]:
        return Counter() if self._assault is None else self._assault.dealt

    @property
    def struck(self) -> Counter[str]:
        return Counter() if self._assault is None else self._assault.struck

    async def run(self) -> None:
        """The history is there even if this is cancelled."""
        plan = self.plan
        campaign = Campaign(
            self._host,
            self._random,
            self.history,
            plan.kinds,
            bootstrap=plan.bootstrap,
            can_look_inside=not plan.is_encrypted,
            local_root=self.local_root if plan.is_local else None,
            node_count=plan.node_count,
            node_command=plan.node_command,
        )
        async with campaign:
            self.generations = sorted(campaign.addresses)
            access = Access(
                self.history,
                lambda _: self._host,
                campaign.addresses,
                self._random,
                plan.name,
                plan.load,
                plan.settings,
                self.counts,
            )
            self._stage = stage = self.stage(access)
            is_evidence = False
            try:
                if plan.kinds:
                    self._assault = assault = campaign.assault()
                    await stage.run(plan.seconds, attack=assault.run, heal=assault.heal)
                else:
                    await stage.run(plan.seconds)
                for proxy in campaign.proxies:
                    proxy.check()  # answers that nobody asked for, say
                if campaign.cluster is not None:
                    stage.set_phase("stopping the nodes")
                    self.directories = await campaign.cluster.stop()
                is_evidence = not plan.is_local and not self.judged().is_clean
            finally:
                if not plan.is_local and not is_evidence:
                    await self._remove_all(stage)

    def stage(self, access: Access) -> Stage:
        """Who works, and how it comes to an end."""
        return Semantics(access, self.plan.ways) if self.plan.ways else Workload(access)

    async def _remove_all(self, stage: Stage) -> None:
        """What is left behind by a slow cluster says nothing against what was checked."""
        try:
            async with asyncio.timeout(_CLEANING_S):
                await stage.remove_all()
        except (TimeoutError, SemelError) as error:
            logger.warning("topics and groups named %s-... are left behind: %s", self.plan.name, error or "no time")

    def judged(self) -> Report:
        return judge(self.history, allowed=self.plan.allowed)

    def tallies(self) -> dict[Way, Tally]:
        return self._stage.tallies() if isinstance(self._stage, Semantics) else {}

    def _random(self, purpose: str) -> random_module.Random:
        return random_module.Random(f"{self.plan.seed}/{purpose}")
