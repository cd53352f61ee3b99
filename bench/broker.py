"""Our broker beside Apache Kafka: the same load on both in turns, on one machine, on one disk.

Kafka answers from the page cache, and so does semel with `--flush os`; where it matters, semel with fsync has its turn
as well, in rows of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import broker_clients
import broker_starts
import load_generator
from brokers import Node, kafka_node, semel_node
from cases import Case, Progress, chosen, run_cases
from fresh_topic import fresh_topic
from load_generator import Fetch, Loaded, Produce
from measured import Measured, measured
from repeats import repeating

_SECONDS = 1.8
_WARM_UP_S = 3.0
# More than any of them writes while it warms up.
_WRITTEN_BYTES = 2 << 30
_PARTITIONS = 4
# What is to be read.
_FILLING = Produce(in_flight=2, records=64)


class Figure(NamedTuple):
    """What of a load's figures is compared, and where the ratio is meant to get."""

    what: str
    of: Callable[[Loaded], float]
    unit: str
    goal: float | None = None
    less_is_better: bool = False


class Load(NamedTuple):
    work: Produce | Fetch
    figures: tuple[Figure, ...]
    fsync: bool = False


LOADS = {
    "produce 1 KB": Load(
        Produce(connections=4, in_flight=5, records=16, value_bytes=1000),
        (
            Figure("throughput", lambda one: one.megabytes, "MB/s", 1.1),
            Figure("broker CPU", lambda one: one.cpu_s_per_gb, "s/GB", 0.6, True),
        ),
        fsync=True,
    ),
    "produce 1 KB, 16 connections": Load(
        Produce(connections=16, in_flight=5, records=16, value_bytes=1000),
        (Figure("throughput", lambda one: one.megabytes, "MB/s", 1.1),),
        fsync=True,
    ),
    "produce 1 KB, 128 connections": Load(
        Produce(connections=128, in_flight=5, records=16, value_bytes=1000),
        (Figure("throughput", lambda one: one.megabytes, "MB/s", 1.1),),
        fsync=True,
    ),
    "produce 100 B": Load(
        Produce(connections=4, in_flight=5, records=160, value_bytes=100),
        (
            Figure("throughput", lambda one: one.megabytes, "MB/s"),
            Figure("broker CPU", lambda one: one.cpu_s_per_gb, "s/GB", 0.6, True),
        ),
    ),
    "one record a request, 8 connections": Load(
        Produce(connections=8, in_flight=1, records=1, value_bytes=100),
        (Figure("requests", lambda one: one.requests, "/s", 2.0),),
    ),
    "one record a request, 32 connections": Load(
        Produce(connections=32, in_flight=1, records=1, value_bytes=100),
        (Figure("requests", lambda one: one.requests, "/s", 2.0),),
    ),
    "one produce at a time": Load(
        Produce(connections=1, in_flight=1, records=1, value_bytes=100),
        (
            Figure("p50", lambda one: one.p50_us, "us", 0.6, True),
            Figure("p99", lambda one: one.p99_us, "us", 0.6, True),
        ),
        fsync=True,
    ),
    "1,000 produces a second, whatever the broker does": Load(
        Produce(in_flight=5, value_bytes=100, rate=1000),
        (
            Figure("p50", lambda one: one.p50_us, "us", None, True),
            Figure("p99", lambda one: one.p99_us, "us", None, True),
        ),
    ),
    "fetch": Load(
        Fetch(),
        (
            Figure("throughput", lambda one: one.megabytes, "MB/s", 1.2),
            Figure("broker CPU", lambda one: one.cpu_s_per_gb, "s/GB", 0.8, True),
        ),
    ),
    "fetch in sessions, 4 partitions a request": Load(
        Fetch(max_bytes=64 << 10, partitions_per_request=4, sessions=True),
        (
            Figure("requests", lambda one: one.requests, "/s"),
            Figure("broker CPU", lambda one: one.cpu_us_per_request, "us a request", None, True),
        ),
    ),
}


class Both:
    """The brokers, started when the first case needs them: semel, Kafka, and semel with fsync."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes: tuple[Node, Node, Node] | None = None
        self._running = ExitStack()

    def __enter__(self) -> Both:
        return self

    def __exit__(self, *_: Any) -> None:
        self._running.close()

    @property
    def nodes(self) -> tuple[Node, Node, Node]:
        if self._nodes is None:
            ours, theirs = semel_node(self._root / "semel"), kafka_node(self._root / "kafka")
            self._nodes = ours, theirs, semel_node(self._root / "synced", "fsync")
            for node in self._nodes:
                self._running.callback(node.process.kill)
                node.process.start()
            self._warm_up_java(theirs)
        return self._nodes

    def _warm_up_java(self, node: Node) -> None:
        """What Java has not run for some seconds, it has not compiled."""
        topic = "warming-up"
        node.create(topic, _PARTITIONS)
        for name in ("produce 1 KB", "one record a request, 32 connections", "fetch"):
            load_generator.load(node, topic, LOADS[name].work, seconds=_WARM_UP_S)
        node.delete(topic)


def measure(root: Path, rounds: int, share: float, words: str) -> list[Measured]:
    seconds = max(_SECONDS * share, 0.5)
    with Both(root / "both") as both:
        cases = [_load_case(both, name, load, rounds, seconds) for name, load in LOADS.items()]
        cases += broker_clients.cases(lambda: both.nodes, rounds, share)
        cases += broker_starts.cases(root, rounds, share)
        return run_cases([repeating(case) for case in chosen(cases, words)])


def _load_case(both: Both, name: str, load: Load, rounds: int, seconds: float) -> Case[Measured]:
    def run(tell: Progress) -> list[Measured]:
        nodes = both.nodes if load.fsync else both.nodes[:2]
        return _loaded(nodes, name, load, rounds, seconds, tell)

    return Case(name, (3 if load.fsync else 2) * (rounds + 1), run)


def _loaded(
    nodes: tuple[Node, ...], name: str, load: Load, rounds: int, seconds: float, tell: Progress
) -> list[Measured]:
    topic = name.replace(" ", "-").replace(",", "")
    reads = isinstance(load.work, Fetch)
    needed_bytes, most_written = _WRITTEN_BYTES, 0.0
    for node in nodes if reads else ():
        node.create(topic, _PARTITIONS)
        load_generator.load(node, topic, _FILLING, seconds=_WARM_UP_S)
    os.sync()  # or what one of them has written faster is written back while it is read
    done: dict[str, list[Loaded]] = {node.name: [] for node in nodes}
    for number in range(rounds + 1):
        for node in nodes:
            turn_s = seconds if number else max(seconds, _WARM_UP_S)
            where = topic if reads else f"{topic}-{number}"
            with nullcontext() if reads else fresh_topic(node, where, _PARTITIONS, needed_bytes):
                one = load_generator.load(node, where, load.work, seconds=turn_s)
            turn = f"round {number} of {rounds}" if number else "warming up"
            tell(f"{name}, {turn}: {node.name}: {one.requests:,.0f} requests/s, {one.megabytes:,.0f} MB/s")
            if number:
                done[node.name].append(one)
            most_written = max(most_written, one.sum_megabytes)
        needed_bytes = int(most_written * 1.2e6)
    for node in nodes if reads else ():
        node.delete(topic)
    ours, theirs, *synced = done.values()
    found = [_row(name, figure, ours, theirs) for figure in load.figures]
    for durable in synced:
        found += [_row(f"{name}, fsync", figure._replace(goal=None), durable, theirs) for figure in load.figures]
        if load.figures[0].what == "throughput":
            mine, other = ([one.megabytes for one in side] for side in (durable, ours))
            row = f"fsync beside the page cache, {name.removeprefix('produce ')}"
            found.append(measured(row, mine, other, beside="semel --flush os", unit="MB/s", goal=0.8))
    return found


def _row(name: str, figure: Figure, ours: list[Loaded], theirs: list[Loaded]) -> Measured:
    return measured(
        f"{name}: {figure.what}",
        [figure.of(one) for one in ours],
        [figure.of(one) for one in theirs],
        beside="kafka",
        unit=figure.unit,
        goal=figure.goal,
        less_is_better=figure.less_is_better,
    )


def skip_reason() -> str | None:
    import apache_kafka

    os.environ.setdefault(apache_kafka.ASKED_FOR_KAFKA, "1")
    return apache_kafka.skip_reason() or load_generator.skip_reason()
