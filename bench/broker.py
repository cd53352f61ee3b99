"""Our broker beside Apache Kafka: the same load on both in turns, on one machine, on one disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kload
from brokers import Node, kafka_node, semel_node
from kload import Loaded
from measured import Measured, measured

_WORKERS = Path(__file__).with_name("broker_workers.py")
_SECONDS = 5.0

Tell = Callable[[str], None]
Figure = Callable[[Loaded], float]

# Row: kload's options, and what of its figures is compared: name, figure, unit, goal, whether less is better.
LOADS: dict[str, tuple[tuple[str, ...], tuple[tuple[str, Figure, str, float | None, bool], ...]]] = {
    "produce 1 KB": (
        ("-m", "0", "-c", "4", "-k", "5", "-r", "16", "-v", "1000"),
        (
            ("throughput", lambda one: one.megabytes, "MB/s", 1.1, False),
            ("broker CPU", lambda one: one.cpu_s_per_gb, "s/GB", 0.6, True),
        ),
    ),
    "produce 100 B": (
        ("-m", "0", "-c", "4", "-k", "5", "-r", "160", "-v", "100"),
        (
            ("throughput", lambda one: one.megabytes, "MB/s", None, False),
            ("broker CPU", lambda one: one.cpu_s_per_gb, "s/GB", 0.6, True),
        ),
    ),
    "one record a request, 8 connections": (
        ("-m", "0", "-c", "8", "-k", "1", "-r", "1", "-v", "100"),
        (("requests", lambda one: one.requests, "/s", 2.0, False),),
    ),
    "one record a request, 32 connections": (
        ("-m", "0", "-c", "32", "-k", "1", "-r", "1", "-v", "100"),
        (("requests", lambda one: one.requests, "/s", 2.0, False),),
    ),
    "one produce at a time": (
        ("-m", "0", "-c", "1", "-k", "1", "-r", "1", "-v", "100"),
        (
            ("p50", lambda one: one.p50_us, "us", 0.6, True),
            ("p99", lambda one: one.p99_us, "us", 0.6, True),
        ),
    ),
    "fetch": (
        ("-m", "1", "-c", "4", "-k", "1", "-x", "1048576"),
        (
            ("throughput", lambda one: one.megabytes, "MB/s", 1.2, False),
            ("broker CPU", lambda one: one.cpu_s_per_gb, "s/GB", 0.8, True),
        ),
    ),
}


def measure(root: Path, rounds: int, share: float, tell: Tell) -> list[Measured]:
    found: list[Measured] = []
    seconds = max(_SECONDS * share, 0.5)
    with _running(root / "both", fsync=True) as (ours, theirs, synced):
        found += _loads(ours, theirs, rounds, seconds, tell)
        found.append(_flushing(ours, synced, rounds, seconds, tell))
        found += _clients(ours, theirs, rounds, seconds, tell)
    found += _starts(root / "starts", rounds, share, tell)
    return found + _memory(root / "memory", share, tell)


@contextmanager
def _running(root: Path, *, fsync: bool = False) -> Any:
    nodes = [semel_node(root / "semel"), kafka_node(root / "kafka")]
    if fsync:
        nodes.append(semel_node(root / "synced", "fsync"))
    try:
        for node in nodes:
            node.process.start()
        yield nodes
    finally:
        for node in nodes:
            node.process.kill()


def _loads(ours: Node, theirs: Node, rounds: int, seconds: float, tell: Tell) -> list[Measured]:
    found = []
    for name, (options, figures) in LOADS.items():
        topic = name.replace(" ", "-").replace(",", "")
        for node in (ours, theirs):
            node.create(topic, 4)
            if name == "fetch":
                kload.load(node, topic, "-m", "0", "-c", "4", "-k", "2", "-r", "64", "-v", "1000", seconds=seconds)
        done: dict[str, list[Loaded]] = {ours.name: [], theirs.name: []}
        for number in range(rounds + 1):  # the first warms up
            for node in (ours, theirs):
                one = kload.load(node, topic, *options, seconds=seconds if number else max(seconds, 3.0))
                tell(f"{name}, round {number}: {node.name}: {one.requests:,.0f} requests/s, {one.megabytes:,.0f} MB/s")
                if number:
                    done[node.name].append(one)
        for what, figure, unit, goal, less_is_better in figures:
            found.append(
                measured(
                    f"{name}: {what}",
                    [figure(one) for one in done[ours.name]],
                    [figure(one) for one in done[theirs.name]],
                    beside="kafka",
                    unit=unit,
                    goal=goal,
                    less_is_better=less_is_better,
                )
            )
        for node in (ours, theirs):
            node.delete(topic)
    return found


def _flushing(ours: Node, synced: Node, rounds: int, seconds: float, tell: Tell) -> Measured:
    options = LOADS["produce 1 KB"][0]
    done: dict[str, list[float]] = {ours.name: [], synced.name: []}
    for node in (ours, synced):
        node.create("flushing", 4)
    for number in range(rounds + 1):
        for node in (synced, ours):
            one = kload.load(node, "flushing", *options, seconds=seconds)
            tell(f"fsync and page cache, round {number}: {node.name}: {one.megabytes:,.0f} MB/s")
            if number:
                done[node.name].append(one.megabytes)
    for node in (ours, synced):
        node.delete("flushing")
    name = "fsync beside the page cache, 1 KB"
    return measured(name, done[synced.name], done[ours.name], beside="semel --flush os", unit="MB/s", goal=0.8)


def _clients(ours: Node, theirs: Node, rounds: int, seconds: float, tell: Tell) -> list[Measured]:
    """With librdkafka: transactions, and from producer to consumer."""
    cases: list[tuple[str, tuple[str, ...], str, str, float, bool]] = [
        ("transactions of 1 record", ("transactions", "1"), "a_second", "/s", 2.0, False),
        ("transactions of 1 record: commit p99", ("transactions", "1"), "p99_ms", "ms", 0.5, True),
        ("transactions of 1000 records", ("transactions", "1000"), "a_second", "/s", 2.0, False),
        ("transactions of 1000 records: commit p99", ("transactions", "1000"), "p99_ms", "ms", 0.5, True),
        ("end to end at 10,000 records/s: p50", ("end_to_end", "10000"), "p50_ms", "ms", 0.7, True),
        ("end to end at 10,000 records/s: p99", ("end_to_end", "10000"), "p99_ms", "ms", 0.7, True),
    ]
    found, told = [], dict[tuple[str, ...], dict[str, list[dict[str, float]]]]()
    for name, work, figure, unit, goal, less_is_better in cases:
        if work not in told:
            told[work] = {ours.name: [], theirs.name: []}
            topic = "-".join(work)
            for node in (ours, theirs):
                node.create(topic, 2)
            for number in range(rounds + 1):
                for node in (ours, theirs):
                    one = _worker(node, topic, *work, str(max(seconds, 2.0)))
                    tell(f"{' '.join(work)}, round {number}: {node.name}: {one}")
                    if number:
                        told[work][node.name].append(one)
        mine, other = ([one[figure] for one in told[work][node.name]] for node in (ours, theirs))
        row = measured(name, mine, other, beside="kafka", unit=unit, goal=goal, less_is_better=less_is_better)
        found.append(row)
    return found


def _worker(node: Node, topic: str, *arguments: str) -> dict[str, float]:
    command = [sys.executable, str(_WORKERS), node.address, topic, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments} on {node.name}: {done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _starts(root: Path, rounds: int, share: float, tell: Tell) -> list[Measured]:
    """To the first record: on nothing, after kill -9 with a long log, and after kill -9 with many partitions."""
    cases: list[tuple[str, float, Callable[[Node], None]]] = [
        ("start to the first record", 0.15, lambda node: None),
        (f"restart after kill -9, {5 * share:g} GB", 0.5, lambda node: _fill(node, 5 * share)),
        ("restart after kill -9, 1,000 partitions", 0.5, lambda node: _touch(node, max(int(1000 * share), 10))),
    ]
    found = []
    for number, (name, goal, prepare) in enumerate(cases):
        seconds: dict[str, list[float]] = {}
        for node in (semel_node(root / f"semel-{number}"), kafka_node(root / f"kafka-{number}")):
            node.process.start()
            node.create("first", 1)
            prepare(node)
            done = seconds.setdefault(node.name, [])
            for _ in range(rounds):
                node.process.kill()
                done.append(node.seconds_to_first_record("first"))
                tell(f"{name}: {node.name}: {done[-1]:.2f} s")
            node.process.kill()
        ours, theirs = seconds["semel"], seconds["kafka"]
        found.append(measured(name, ours, theirs, beside="kafka", unit="s", goal=goal, less_is_better=True))
    return found


def _fill(node: Node, gigabytes: float) -> None:
    node.create("long", 4)
    options = ("-m", "0", "-c", "4", "-k", "2", "-r", "500", "-v", "1000")
    written = 0.0
    while written < gigabytes * 1000:
        begin_s = time.monotonic()
        one = kload.load(node, "long", *options, seconds=1.0)
        written += one.megabytes * (time.monotonic() - begin_s)


def _touch(node: Node, partitions: int) -> None:
    node.create("many", partitions)
    _worker(node, "many", "touch", str(partitions))


def _memory(root: Path, share: float, tell: Tell) -> list[Measured]:
    """Of a node that has just started and one with much to remember."""
    producers = max(int(100_000 * share), 1000)
    sizes: dict[str, list[float]] = {}
    for node in (semel_node(root / "semel"), kafka_node(root / "kafka")):
        node.process.start()
        time.sleep(2)
        taken = sizes.setdefault(node.name, [])
        taken.append(node.resident_bytes() / 1e6)
        _touch(node, max(int(1000 * share), 10))
        taken.append(node.resident_bytes() / 1e6)
        node.create("producers", 1)
        _worker(node, "producers", "producer_ids", str(producers))
        taken.append(node.resident_bytes() / 1e6)
        tell(f"memory: {node.name}: {', '.join(f'{size:.0f} MB' for size in taken)}")
        node.process.kill()
    names = ["idle", "with 1,000 partitions", f"and with {producers:,} producer ids"]
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


def skip_reason() -> str | None:
    import apache_kafka

    os.environ.setdefault(apache_kafka.ASKED_FOR_KAFKA, "1")
    return apache_kafka.skip_reason() or kload.skip_reason()
