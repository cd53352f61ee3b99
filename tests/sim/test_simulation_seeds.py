"""Every seed that has ever found something, and some that nobody has run before; those are printed.

SEMEL_SIM_SEEDS=300 runs more fresh ones, FIRST_FRESH_SEED=N says which. `semel sim --seed N` tells the story of one.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from semel.sim.world.exploring import explore_one

FRESH = int(os.environ.get("SEMEL_SIM_SEEDS", "24"))
AT_A_TIME = 8
FIRST = int(os.environ.get("FIRST_FRESH_SEED") or random.SystemRandom().randrange(1 << 20, 1 << 40))


def kept_seeds() -> list[tuple[int, int]]:
    """Each with the number of nodes that it was run with."""
    lines = Path(__file__).with_name("seeds.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    return [(int(seed), int(nodes or 1)) for seed, _, nodes in (name.partition("/") for name in names)]


def check(seed: int, nodes: int = 1) -> None:
    explored = explore_one(seed, nodes)
    assert not explored.violations, f"semel sim --seed {seed} --nodes {nodes}: {explored.violations[:5]}"


@pytest.mark.parametrize(("seed", "nodes"), kept_seeds())
def test_a_seed_that_has_found_something_finds_nothing_any_more(seed: int, nodes: int) -> None:
    check(seed, nodes)


@pytest.mark.parametrize("start", range(0, FRESH, AT_A_TIME))
def test_fresh_seeds_find_nothing(start: int) -> None:
    """Their names do not tell the seeds, so that the same tests are collected everywhere."""
    first = FIRST + start
    print(f"semel sim --seeds {first}..{first + AT_A_TIME - 1}")
    for seed in range(first, first + AT_A_TIME):
        check(seed)
