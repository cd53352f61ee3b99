"""A long row of misfortunes, drawn by a seed: every kind at every step comes once before any comes again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TypeAlias

import chaos_misfortunes as misfortunes
from chaos_misfortunes import Chaos
from chaos_world import Verdict

from semel.spark.steps import COMMIT_STEPS, Step

Misfortune: TypeAlias = Callable[[Chaos], object]

IN_TRANSACTION = (Step.BEGUN, Step.HALF_PUBLISHED, Step.PUBLISHED, Step.MARKED)


def deck(random: Random) -> list[Misfortune]:
    """One of each kind, in a random order."""
    cards: list[Misfortune] = [
        misfortunes.kill_worker,
        misfortunes.kill_worker,
        misfortunes.kill_all_workers,
        misfortunes.stop_after_output,
        misfortunes.damage_staged_file,
        partial(misfortunes.kill_driver, step=Step.STAGED),
    ]
    for step in COMMIT_STEPS:
        cards += [
            partial(misfortunes.kill_commit, step=step),
            partial(misfortunes.kill_driver, step=step),
            partial(misfortunes.zombie_driver, step=step, is_staging_kept=random.random() < 0.5),
            partial(misfortunes.stop_in_commit, step=step, is_overtaken=random.random() < 0.5),
            partial(misfortunes.kill_broker, step=step, away_s=random.choice((0.0, 0.0, 0.5, 2.0))),
        ]
    cards += [partial(misfortunes.outlast_the_transaction, step=step) for step in IN_TRANSACTION]
    for kill in (misfortunes.kill_driver_after, misfortunes.kill_broker_after, misfortunes.kill_workers_after):
        cards += [partial(kill, delay_s=random.uniform(0, 2)) for _ in range(2)]
    random.shuffle(cards)
    return cards


def misfortunes_without_end(seed: int) -> Iterator[Misfortune]:
    random = Random(seed)
    while True:
        yield from deck(random)


def ending(error: str) -> str:
    """What a query has failed with, in a word."""
    if named := re.findall(r"^semel[.\w]*\.(\w+): ", error, re.MULTILINE):
        return str(named[-1])
    if "Python worker exited unexpectedly" in error:
        return "a worker died"
    if condition := re.search(r"\[(CONCURRENT\w+)", error):
        return condition[1]
    told = error.partition("terminated with exception: ")[2] or error
    return told.partition("\n")[0][:40]


def table(chaos: Chaos, verdict: Verdict) -> str:
    rows = [*sorted(chaos.kills.items()), ("kills in all", chaos.kills.total())]
    rows += [*sorted(chaos.troubles.items()), ("other misfortunes in all", chaos.troubles.total())]
    rows += sorted(Counter(f"query failed: {ending(error)}" for error in chaos.errors).items())
    rows += [
        ("queries started again", chaos.restarts),
        ("batches", verdict.batches),
        ("records produced", verdict.produced),
        ("records in the output", verdict.records),
        ("lost", verdict.lost),
        ("duplicated", verdict.duplicated),
        ("out of order", verdict.out_of_order),
        ("wrong", verdict.wrong),
        ("staged files left", len(verdict.staged_files)),
    ]
    return "\n".join(f"{name:<54} {count:>8}" for name, count in rows)
