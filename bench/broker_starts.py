"""How long the two brokers take to be there, on nothing and after kill -9, and how much memory they take."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from broker_clients import worker
from brokers import Node, kafka_node, semel_node
from cases import Case, Progress
from load_generator import Produce, load
from measured import Measured, measured

# Kafka takes seconds for each of them.
_MOST_ROUNDS = 3
_GIGABYTES = 5
_PARTITIONS = 1000
_PRODUCER_IDS = 100_000


def cases(root: Path, rounds: int, share: float) -> list[Case[Measured]]:
    rounds = min(rounds, _MOST_ROUNDS)
    partitions = max(int(_PARTITIONS * share), 10)
    gigabytes = _GIGABYTES * share
    starts: list[tuple[str, float, Callable[[Node], None]]] = [
        ("start to the first record", 0.15, lambda node: None),
        (f"restart after kill -9, {gigabytes:g} GB", 0.5, lambda node: _fill(node, gigabytes)),
        (f"restart after kill -9, {partitions:,} partitions", 0.5, lambda node: _touch(node, partitions)),
    ]

    def case(name: str, goal: float, prepare: Callable[[Node], None]) -> Case[Measured]:
        return Case(name, 2 * rounds, lambda tell: [_starts(root, name, goal, prepare, rounds, tell)])

    found = [case(*start) for start in starts]
    return [*found, Case("memory", 2, lambda tell: _memory(root / "memory", partitions, share, tell))]


def _starts(
    root: Path, name: str, goal: float, prepare: Callable[[Node], None], rounds: int, tell: Progress
) -> Measured:
    """Seconds from the start of the process to the first record that is acknowledged."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=root) as place:  # measured again, it begins with nothing
        for node in (semel_node(Path(place) / "semel"), kafka_node(Path(place) / "kafka")):
            try:
                node.process.start()
                node.create("first", 1)
                prepare(node)
                done = seconds.setdefault(node.name, [])
                for number in range(rounds):
                    node.process.kill()
                    done.append(node.seconds_to_first_record("first"))
                    tell(f"{name}, round {number + 1} of {rounds}: {node.name}: {done[-1]:.2f} s")
            finally:
                node.process.kill()
    ours, theirs = seconds["semel"], seconds["kafka"]
    return measured(name, ours, theirs, beside="kafka", unit="s", goal=goal, less_is_better=True)


def _fill(node: Node, gigabytes: float) -> None:
    node.create("long", 4)
    work = Produce(in_flight=2, records=500)
    written = 0.0
    while written < gigabytes * 1000:
        written += load(node, "long", work, seconds=1.0).sum_megabytes


def _touch(node: Node, partitions: int) -> None:
    node.create("many", partitions)
    worker(node, "many", "touch", str(partitions))


def _memory(root: Path, partitions: int, share: float, tell: Progress) -> list[Measured]:
    """Of a node that has just started and one with much to remember."""
    producers = max(int(_PRODUCER_IDS * share), 1000)
    sizes: dict[str, list[float]] = {}
    for node in (semel_node(root / "semel"), kafka_node(root / "kafka")):
        taken = sizes.setdefault(node.name, [])
        try:
            node.process.start()
            time.sleep(2)
            taken.append(node.resident_bytes() / 1e6)
            _touch(node, partitions)
            taken.append(node.resident_bytes() / 1e6)
            node.create("producers", 1)
            worker(node, "producers", "producer_ids", str(producers))
            taken.append(node.resident_bytes() / 1e6)
        finally:
            node.process.kill()
        tell(f"memory: {node.name}: {', '.join(f'{size:.0f} MB' for size in taken)}")
    names = ["idle", f"with {partitions:,} partitions", f"and with {producers:,} producer ids"]
    return [
        measured(
            f"memory, {name}",
            [sizes["semel"][place]],
            [sizes["kafka"][place]],
            beside="kafka",
            unit="MB",
            goal=0.2,
            less_is_better=True,
        )
        for place, name in enumerate(names)
    ]
