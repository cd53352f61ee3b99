"""The node dies at every single disk call of a run of transactions: what was decided is carried out, all of it, once.

`SEMEL_TRANSACTION_ROUNDS` and `SEMEL_TRANSACTION_SEEDS` enlarge the work, `SEMEL_TRANSACTION_STEP` thins it out.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from transaction_workload import History, NoAnswer, judge, new_node, recover, work

from semel.sim.loop import run

ROUNDS = int(os.environ.get("SEMEL_TRANSACTION_ROUNDS", "2"))
SEEDS = range(int(os.environ.get("SEMEL_TRANSACTION_SEEDS", "2")))
STEP = int(os.environ.get("SEMEL_TRANSACTION_STEP", "1"))


def calls(seed: int) -> tuple[int, int]:
    """How many disk calls a whole run makes, and how many of them before the node is ready."""
    loop, node = new_node(seed)

    async def scenario() -> tuple[int, int]:
        await node.start()
        ready = node.disk.calls
        history = History()
        await work(node, history, ROUNDS)
        total = node.disk.calls
        await judge(node, history)
        return ready, total

    return run(scenario(), loop=loop)


def die_at(seed: int, call: int, when: Any, *, by_kill: bool, again_at: int = 0) -> bool:
    """Whether the second death, if one was asked for, came to pass."""
    loop, node = new_node(seed)

    async def scenario() -> bool:
        await node.start()
        node.disk.crash_at(call, when)
        history = History()
        try:
            await work(node, history, ROUNDS)
        except NoAnswer:
            assert node.disk.dead
        if by_kill:
            node.world.kill("broker")
        else:
            node.world.lose_power("broker")
        has_died_again = False
        if again_at:
            node.disk.crash_at(again_at, "during")
            try:
                async with asyncio.timeout(60):  # what a dead node has begun never ends
                    await node.start()
                    await recover(node)
                node.disk.crash_at(0)
            except BaseException:
                if not node.disk.dead:
                    raise
                has_died_again = True
                node.world.lose_power("broker")
        if not again_at or has_died_again:
            await node.start()
        await judge(node, history)
        return has_died_again

    try:
        return run(scenario(), loop=loop)
    except BaseException as failure:
        failure.add_note(f"seed {seed}: the node died {when} call {call}, by_kill={by_kill}, again_at={again_at}")
        failure.add_note(f"last calls: {[tuple(c) for c in list(node.disk.log)[-4:]]}")
        raise


@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_power_loss_at_any_disk_call_of_a_transaction_leaves_it_ended_as_decided(when: Any) -> None:
    for seed in SEEDS:
        ready, total = calls(seed)
        for call in range(ready + 1, total + 1, STEP):
            die_at(seed, call, when, by_kill=False)


@pytest.mark.timeout(600)
def test_a_kill_at_any_disk_call_of_a_transaction_leaves_it_ended_as_decided() -> None:
    for seed in SEEDS:
        ready, total = calls(seed)
        for call in range(ready + 1, total + 1, STEP):
            die_at(seed, call, "before", by_kill=True)


@pytest.mark.timeout(600)
def test_a_second_power_loss_while_the_decisions_are_carried_out_changes_nothing() -> None:
    ready, total = calls(0)
    for call in range(total - (total - ready) // 3, total + 1, 11):
        again_at = 1
        while die_at(0, call, "during", by_kill=False, again_at=again_at):
            again_at += 3
