"""Many seeds, one after the other or in several processes, until one of them finds something."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple

from semel.sim.world.findings import Violation
from semel.sim.world.schedule import drawn
from semel.sim.world.simulation import simulate

AHEAD = 4
"""Runs that are handed to each process before their results are asked for."""
GARBAGE_MAX = 50_000
"""Objects between two searches for garbage; a run makes some hundred thousand."""


class Explored(NamedTuple):
    seed: int
    violations: list[Violation]
    coverage: dict[str, int]
    virtual_s: float


@dataclass
class Progress:
    """What was done so far. `real_s` is set by whoever watches the clock."""

    nodes: int = 1
    voters: int = 1
    runs: int = 0
    virtual_s: float = 0.0
    real_s: float = 0.0
    coverage: Counter[str] = field(default_factory=Counter)
    found: Explored | None = None

    @property
    def hours_per_second(self) -> float:
        return self.virtual_s / 3600 / self.real_s if self.real_s else 0.0

    def add(self, explored: Explored) -> None:
        self.runs += 1
        self.virtual_s += explored.virtual_s
        self.coverage.update(explored.coverage)
        if explored.violations:
            self.found = explored


def apply_patch(patch: str | None) -> None:
    """`module:function`: imports the one and calls the other, before the first run. For mistakes made on purpose."""
    if patch is not None:
        module, _, function = patch.partition(":")
        getattr(import_module(module), function)()


def explore_one(seed: int, nodes: int = 1, voters: int = 1) -> Explored:
    run = simulate(drawn(seed, nodes, voters))
    return Explored(seed, run.violations, run.coverage, run.virtual_s)


def explore(
    seeds: Iterable[int],
    *,
    nodes: int = 1,
    voters: int = 1,
    jobs: int = 1,
    patch: str | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Stops at the first seed that finds something; the seeds before it have found nothing."""
    progress = Progress(nodes, voters)
    began_s = time.monotonic()
    results = (
        _one_by_one(seeds, nodes, voters, patch) if jobs == 1 else _in_processes(seeds, nodes, voters, jobs, patch)
    )
    for explored in results:
        progress.add(explored)
        progress.real_s = time.monotonic() - began_s
        tell(progress)
        if progress.found is not None:
            break
    return progress


def _one_by_one(seeds: Iterable[int], nodes: int, voters: int, patch: str | None) -> Iterator[Explored]:
    _begin(patch)
    for seed in seeds:
        yield explore_one(seed, nodes, voters)


def _in_processes(seeds: Iterable[int], nodes: int, voters: int, jobs: int, patch: str | None) -> Iterator[Explored]:
    waiting: deque[Future[Explored]] = deque()
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(patch,)) as pool:
        try:
            for seed in seeds:
                waiting.append(pool.submit(explore_one, seed, nodes, voters))
                if len(waiting) >= jobs * AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _begin(patch: str | None) -> None:
    """What is there now stays, and a run leaves little behind: there is no need to look for it often."""
    apply_patch(patch)
    gc.freeze()
    gc.set_threshold(GARBAGE_MAX)
