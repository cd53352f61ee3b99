"""The client behind the fault proxy, one run per seed, in virtual time: nothing lost, nothing twice, order kept.

`SEMEL_SEEDS` sets how many seeds each workload runs (long ones a quarter of it), from `SEMEL_FIRST_SEED` on. A failure
tells its seed, the settings, and all that the proxies did; a seed that has ever failed is kept below.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from client_pipeline import PipelineRun
from client_transactions import TransactionalRun
from client_transform import PlainTransformRun, TransformRun
from client_workload import idempotent_run, new_world

from client_world import ClientWorld
from semel.sim.attack.fault_policy import Fault, SeededFaults

SEEDS = int(os.environ.get("SEMEL_SEEDS", "200"))
FIRST_SEED = int(os.environ.get("SEMEL_FIRST_SEED", "0"))
CHUNKS = 8

Scenario = Callable[[ClientWorld], Coroutine[Any, Any, None]]


async def patient(world: ClientWorld) -> None:
    await idempotent_run(world, impatient=False)


async def impatient(world: ClientWorld) -> None:
    await idempotent_run(world, impatient=True)


async def transactional(world: ClientWorld) -> None:
    await TransactionalRun(world).run()


async def pipeline(world: ClientWorld) -> None:
    await PipelineRun(world).run()


async def transformed(world: ClientWorld) -> None:
    await TransformRun(world).run()


async def transformed_plainly(world: ClientWorld) -> None:
    await PlainTransformRun(world).run()


class Workload(NamedTuple):
    scenario: Scenario
    generation: int = 2
    share: int = 1
    """It runs one of so many seeds: those that take long run fewer."""
    ever_failed: tuple[int, ...] = ()


WORKLOADS = {
    "patient": Workload(patient),
    # A deadline that was compared by a difference: rounded, it was never reached, and the sender turned on the spot.
    "impatient": Workload(impatient, ever_failed=(68,)),
    "transactions": Workload(transactional),
    "transactions, first generation": Workload(transactional, generation=1),
    # The consumer gave an identity without a member to transactions after its group had gone on without it.
    "pipeline": Workload(pipeline, share=4, ever_failed=(21, 23, 39, 54, 92)),
    "pipeline, first generation": Workload(pipeline, generation=1, share=4, ever_failed=(21, 23, 54, 92)),
    "transform": Workload(transformed, share=4),
    "transform, first generation": Workload(transformed, generation=1, share=4),
    "transform without transactions": Workload(transformed_plainly, share=4),
}


def run(name: str, seed: int) -> ClientWorld:
    workload = WORKLOADS[name]
    world = new_world(seed, generation=workload.generation)
    try:
        world.run(workload.scenario)
    except BaseException as failure:
        failure.add_note(f"workload {name!r}, seed {seed}")
        raise
    return world


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", WORKLOADS)
def test_nothing_is_lost_nothing_is_there_twice_and_order_is_kept(name: str, chunk: int) -> None:
    for seed in range(FIRST_SEED + chunk, FIRST_SEED + SEEDS // WORKLOADS[name].share, CHUNKS):
        run(name, seed)


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name, workload in WORKLOADS.items() for seed in workload.ever_failed]
)
def test_what_has_ever_failed_does_not_fail_again(name: str, seed: int) -> None:
    run(name, seed)


@pytest.mark.parametrize("name", WORKLOADS)
def test_one_seed_is_one_history(name: str) -> None:
    first, again = run(name, 3), run(name, 3)
    assert [list(proxy.log) for proxy in first.proxies] == [list(proxy.log) for proxy in again.proxies]


def test_every_kind_of_fault_is_met() -> None:
    dealt: Counter[Fault] = Counter()
    for seed in range(60):
        faults = run("patient", seed).faults
        assert isinstance(faults, SeededFaults)
        dealt += faults.dealt
    assert set(dealt) == set(Fault), dealt
