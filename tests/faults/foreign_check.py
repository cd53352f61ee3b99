"""`semel check` on three brokers, with clients of librdkafka and Java at work beside ours, all in one history."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from foreign_program import ForeignProgram

import apache_kafka
from semel.cli.check import _compare_nodes
from semel.client.metadata import TopicPartition
from semel.host.real import real_host
from semel.sim.attack.assault import FaultKind
from semel.sim.attack.attacked_cluster import DIRECTORY
from semel.sim.attack.checking import Check, Plan
from semel.sim.judging.report import Report
from semel.sim.workload.access import SECOND_GENERATION, Access, Load
from semel.sim.workload.producers import Transactor
from semel.sim.workload.readers import finish_group
from semel.sim.workload.run import Workload, end_what_is_open
from semel.sim.workload.stage import Stage
from slow_turns import Told, told_by

HERE = Path(__file__).parent
LIBRARIES = ("librdkafka", "java")
FAULTS = (FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT)
_FOREIGN = "foreign"
# They give each of their calls ten seconds, and repeat it.
_PATIENCE_S = 90.0
_ENDING_S = 400.0


def command(library: str) -> list[str]:
    if library == "librdkafka":
        return [sys.executable, str(HERE / "librdkafka_clients.py")]
    java = ["java", "-Xmx256m", *apache_kafka.QUICK_JAVA, "-cp", apache_kafka.class_path()]
    return [*java, str(HERE / "ForeignClients.java")]


class ForeignWorkload(Workload):
    """Each library writes to the same topics, and has a group of its own that writes results."""

    def __init__(self, access: Access, libraries: Sequence[str], logs: Path) -> None:
        super().__init__(access)
        self._over: set[str] = set()
        arguments = [access.default_address, access.records_topic, access.results_topic, str(access.load.partitions)]
        self.programs = [
            ForeignProgram(
                access, library, [*command(library), *arguments], self._over.__contains__, logs / f"{library}.log"
            )
            for library in libraries
        ]

    def start_all(self) -> None:
        super().start_all()
        for program in self.programs:
            self.start(_FOREIGN, program.run())

    async def end_writing(self) -> None:
        self._over.add("writing")
        await super().end_writing()

    async def end_groups(self, offsets: dict[TopicPartition, int]) -> None:
        await super().end_groups(offsets)
        access = self.access
        for program in self.programs:
            group = f"{access.records_topic}-{program.name}"
            await finish_group(access, group, offsets, True, lambda: None)
        self._over.add("piping")
        await self.finish(_FOREIGN)
        for program in self.programs:
            for transactional_id in sorted(program.transactional_ids):
                name = f"{transactional_id}-end"
                await end_what_is_open(Transactor(access, name, SECOND_GENERATION, transactional_id))


class ForeignCheck(Check):
    def __init__(self, plan: Plan, root: Path, libraries: Sequence[str]) -> None:
        self.host = real_host()
        super().__init__(self.host, plan, root)
        self.workload: ForeignWorkload | None = None
        self._root = root
        self._libraries = libraries

    def stage(self, access: Access) -> Stage:
        self.workload = ForeignWorkload(access, self._libraries, self._root)
        return self.workload


class Round(NamedTuple):
    """What one round has done and found. `wrong` is what no history may show, and where replicas differ."""

    seed: int
    faults: Counter[str]
    struck: Counter[str]
    counts: Counter[str]
    wrong: list[str]
    complaints: list[str]
    offsets: int
    directory: Path
    turns: list[Told]
    """What nodes said of slow turns when they stopped."""


def one_round(seconds: float, libraries: Sequence[str] = LIBRARIES, seed: int | None = None) -> Round:
    """The directory is gone if all was well. Raises NodeDied."""
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    root = Path(tempfile.mkdtemp(prefix="semel-faults-"))
    load = Load(pause_s=(0.0, 0.2), group_patience_s=_PATIENCE_S, patience_s=_PATIENCE_S, ending_s=_ENDING_S)
    plan = Plan(f"check-{seed:x}", seed, seconds, FAULTS, is_local=True, node_count=3, load=load)
    check = ForeignCheck(plan, root, libraries)
    with closing(check.host):
        asyncio.run(check.run())
    report = check.judged()
    replicas = _compare_nodes(check)
    assert replicas is not None
    wrong = [*_forbidden(report), *replicas.wrong()]
    turns = told_by((root / DIRECTORY).glob("node-*.log"))
    complaints = [] if check.workload is None else [text for one in check.workload.programs for text in one.complaints]
    if wrong or complaints:
        (root / "history.jsonl").write_text("".join(f"{line}\n" for line in check.history.lines()))
    else:
        shutil.rmtree(root)
    faults = Counter({kind.value: count for kind, count in check.dealt.items()})
    return Round(seed, faults, check.struck, check.counts, wrong, complaints, replicas.offsets, root, turns)


def _forbidden(report: Report) -> list[str]:
    return [f"{one.kind.value}: {text}" for one in report.findings.values() if one.forbidden for text in one.examples]
