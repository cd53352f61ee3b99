"""The two brokers as real clients see them: Kafka's own performance tools, and librdkafka."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import perf_tools
from brokers import Node
from cases import Case, Progress
from fresh_topic import fresh_topic
from measured import Measured, measured

_WORKERS = Path(__file__).with_name("broker_workers.py")
_PARTITIONS = 4
# A new Java process compiles itself for ten seconds or so while it sends the first half of them.
_TOOL_RECORDS = 3_000_000
_PACE = 10_000
_PACED_RECORDS = 20_000
_LIBRDKAFKA_RECORDS = 300_000
_WORK_S = 2.0
_PRODUCERS = 8
# Rounds until Kafka has compiled what a transaction needs: there are only some hundred in each, with Java's producer
# some thousand.
_TRANSACTIONS_WARMING, _JAVA_TRANSACTIONS_WARMING = 10, 4
# More than any of them writes in its turn: 3,000,000 records of 1 KB.
_WRITTEN_BYTES = 3_900_000_000

Nodes = Callable[[], tuple[Node, Node, Node]]
# One run on one node, on a topic of that node: figures by name.
Work = Callable[[Node, str], dict[str, float]]


class Column(NamedTuple):
    """One figure of a run: what the row is called, and where its ratio is meant to get."""

    figure: str
    row: str
    unit: str
    goal: float | None = None
    less_is_better: bool = False


def worker(node: Node, topic: str, *arguments: str) -> dict[str, float]:
    """One piece of broker_workers.py, in a process of its own."""
    command = [sys.executable, str(_WORKERS), node.address, topic, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments} on {node.name}: {done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def cases(nodes: Nodes, rounds: int, share: float) -> list[Case[Measured]]:
    records = max(int(_TOOL_RECORDS * share), 20_000)
    paced = max(int(_PACED_RECORDS * share), 5_000)
    rdkafka = str(max(int(_LIBRDKAFKA_RECORDS * share), 20_000))
    seconds = str(max(_WORK_S * share, 1.0))

    def case(
        name: str, work: Work, *columns: Column, fsync: bool = False, fill: int = 0, warming: int = 1
    ) -> Case[Measured]:
        brokers = 3 if fsync else 2
        return Case(
            name,
            brokers * (rounds + 1),
            lambda tell: _measured(nodes()[:brokers], name, work, columns, rounds, fill, warming, tell),
        )

    return [
        case(
            "Kafka's producer, 1 KB",
            lambda node, topic: perf_tools.produce(node, topic, records)._asdict(),
            Column("megabytes", "throughput", "MB/s", 1.1),
            fsync=True,
        ),
        case(
            f"Kafka's producer, {_PACE:,} records/s of 1 KB",
            lambda node, topic: perf_tools.produce(node, topic, paced, _PACE)._asdict(),
            Column("p50_ms", "p50", "ms", None, True),
            Column("p99_ms", "p99", "ms", None, True),
        ),
        case(
            "Kafka's consumer, 1 KB",
            lambda node, topic: perf_tools.consume(node, topic, records)._asdict(),
            Column("megabytes", "throughput", "MB/s", 1.2),
            fill=records,
        ),
        case(
            "librdkafka's producer, 1 KB",
            lambda node, topic: worker(node, topic, "librdkafka_produce", rdkafka),
            Column("megabytes", "throughput", "MB/s", 1.1),
            fsync=True,
        ),
        case(
            "transactions of 1 record",
            lambda node, topic: worker(node, topic, "transactions", "1", seconds),
            Column("a_second", "rate", "/s", 2.0),
            Column("p99_ms", "commit p99", "ms", 0.5, True),
            fsync=True,
            warming=_TRANSACTIONS_WARMING,
        ),
        case(
            f"transactions of 1 record, {_PRODUCERS} producers",
            lambda node, topic: worker(node, topic, "transactions", "1", seconds, str(_PRODUCERS)),
            Column("a_second", "rate", "/s", 2.0),
            Column("p99_ms", "commit p99", "ms", 0.5, True),
            warming=_TRANSACTIONS_WARMING,
        ),
        case(
            "transactions of 1000 records",
            lambda node, topic: worker(node, topic, "transactions", "1000", seconds),
            Column("a_second", "rate", "/s", 2.0),
            Column("p99_ms", "commit p99", "ms", 0.5, True),
            warming=_TRANSACTIONS_WARMING,
        ),
        *(
            case(
                f"Kafka's producer, transactions of {count}",
                lambda node, topic, count=count: perf_tools.transact(node, topic, count, float(seconds))._asdict(),
                Column("a_second", "rate", "/s", 2.0),
                Column("p99_ms", "commit p99", "ms", 0.5, True),
                warming=_JAVA_TRANSACTIONS_WARMING,
            )
            for count in (1, 1000)
        ),
        case(
            "end to end at 10,000 records/s",
            lambda node, topic: worker(node, topic, "end_to_end", "10000", seconds),
            Column("p50_ms", "p50", "ms", 0.7, True),
            Column("p99_ms", "p99", "ms", 0.7, True),
        ),
    ]


def _measured(
    taking_turns: tuple[Node, ...],
    name: str,
    work: Work,
    columns: tuple[Column, ...],
    rounds: int,
    fill: int,
    warming: int,
    tell: Progress,
) -> list[Measured]:
    topic = "".join(letter if letter.isalnum() else "-" for letter in name)
    done: dict[str, list[dict[str, float]]] = {node.name: [] for node in taking_turns}
    writes_much = not fill and columns[0].row == "throughput"
    for node in taking_turns if not writes_much else ():
        node.create(topic, _PARTITIONS)
        if fill:
            perf_tools.produce(node, topic, fill)
    for number in range(rounds + 1):  # the first warms up
        for node in taking_turns:
            if number == 0 and node is taking_turns[1]:
                for _ in range(warming - 1):
                    work(node, topic)
            with fresh_topic(node, topic, _PARTITIONS, _WRITTEN_BYTES) if writes_much else nullcontext():
                one = work(node, topic)
            turn = f"round {number} of {rounds}" if number else "warming up"
            told = ", ".join(f"{column.row} {one[column.figure]:,.4g} {column.unit}" for column in columns)
            tell(f"{name}, {turn}: {node.name}: {told}")
            if number:
                done[node.name].append(one)
    for node in taking_turns if not writes_much else ():
        node.delete(topic)
    ours, theirs, *synced = done.values()
    found = [_row(f"{name}: {column.row}", column, ours, theirs) for column in columns]
    for durable in synced:
        found += [
            _row(f"{name}, fsync: {column.row}", column._replace(goal=None), durable, theirs) for column in columns
        ]
    return found


def _row(name: str, column: Column, ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> Measured:
    return measured(
        name,
        [one[column.figure] for one in ours],
        [one[column.figure] for one in theirs],
        beside="kafka",
        unit=column.unit,
        goal=column.goal,
        less_is_better=column.less_is_better,
    )
