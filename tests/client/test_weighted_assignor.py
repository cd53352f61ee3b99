"""examples/weighted_assignor.py: an assignor of a program, in a real group."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import semel
from semel.client.admin.admin import Admin
from semel.client.admin.values import NewTopic

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "weighted_assignor.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("weighted_assignor", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_members_get_partitions_in_proportion_to_their_weights(example: ModuleType) -> None:
    members = {
        name: semel.Subscription(("t0", "t1"), example.WeightedAssignor(weight).subscription(frozenset(("t0", "t1"))))
        for name, weight in (("C0", 1), ("C1", 2))
    }
    given = example.WeightedAssignor(1).assign({"t0": 3, "t1": 3}, members)
    assert {name: len(one.partitions) for name, one in given.items()} == {"C0": 2, "C1": 4}
    assert len({partition for one in given.values() for partition in one.partitions}) == 6


async def test_a_real_group_is_assigned_by_it(address: str, example: ModuleType, topic: str) -> None:
    name = f"{topic}-six"
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(name, partitions=6)])
    light, heavy = (
        semel.Consumer(
            name,
            bootstrap_servers=address,
            group_id=f"group-{name}",
            group_protocol="classic",
            partition_assignment_strategy=example.WeightedAssignor(weight),
        )
        for weight in (1, 2)
    )
    async with light, heavy:
        async with asyncio.timeout(120):
            while (len(light.assignment()), len(heavy.assignment())) != (2, 4):
                await asyncio.gather(light.poll(timeout_ms=100), heavy.poll(timeout_ms=100))
