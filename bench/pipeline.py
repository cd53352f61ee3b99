"""The pipeline on Spark beside Spark's own Kafka connector: one broker, one warm session, runs that take turns."""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "spark"))

from measured import Measured, measured
from pipeline_kills import killed
from pipeline_latency import latency
from pipeline_runs import DEDUPLICATED, SEMEL, SPARK, WAYS, Run, Stage
from repeats import steady

from real_broker import RealBroker

_TOTAL_ROWS = 1_000_000
_KILLS = 4
# What is deduplicated is kept in Java's memory.
_SPARK = {"spark_ui_enabled": False, "spark_driver_memory": "6g"}
_SEED = 1
_LATENCY_ROWS = 2_000
_LATENCY_S = 20.0
# Of topics: each run has its own.
_numbers = itertools.count()


class Plan(NamedTuple):
    """How many rows in how many batches make a run."""

    batch_rows: int
    batches: int


PLANS = (Plan(10_000, 5), Plan(100_000, 3), Plan(1_000_000, 1))


def measure(root: Path, rounds: int, share: float, tell: Callable[[str], None]) -> list[Measured]:
    from spark_kafka_jars import jars

    import semel.spark

    connector = ",".join(map(str, jars()))
    broker = RealBroker(root, flush="os").start()
    try:
        spark = semel.spark.session("bench", "local[2]", spark_jars=connector, **_SPARK)
        stage = Stage(spark, broker.address)
        rows = _throughput(stage, rounds, share, tell)
        rows += _parts(stage, rounds, share, tell)
        timed = partial(_latencies, stage, broker.address, rounds, share, tell)
        rows += steady(timed(), timed, tell)
        spark.stop()
        return rows + _kills(stage, broker.address, connector, share, tell)
    finally:
        broker.stop()


def _throughput(stage: Stage, rounds: int, share: float, tell: Callable[[str], None]) -> list[Measured]:
    found: list[Measured] = []
    for size in (100, 1000):
        source = f"source-{size}"
        stage.create(source)
        tell(f"writing {int(_TOTAL_ROWS * share):,} values of {size} B")
        stage.fill(source, max(int(_TOTAL_ROWS * share), 1000), size)
        for plan in PLANS:
            batch_rows = max(int(plan.batch_rows * share), 100)
            part = source if plan.batch_rows == _TOTAL_ROWS else f"{source}-{plan.batch_rows}"
            if part != source:
                stage.create(part)
                stage.fill(part, batch_rows * plan.batches, size)
            work = partial(_in_turns, stage, part, batch_rows, size, rounds, tell)
            found += steady(work(), work, tell)
        stage.delete(source)
    return found


def _in_turns(
    stage: Stage, source: str, batch_rows: int, size: int, rounds: int, tell: Callable[[str], None]
) -> list[Measured]:
    name = f"{size} B, {batch_rows:,} rows a batch"
    runs: dict[str, list[Run]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):  # the first warms Java up
        for way in WAYS:
            sink = f"sink-{source}-{next(_numbers)}"
            stage.create(sink)
            run = stage.run(way, source, sink, batch_rows)
            there = stage.count(sink)
            if there != run.rows:
                raise RuntimeError(f"{way}: {run.rows} rows went in, {there} came out")
            stage.delete(sink)
            tell(f"{name}, round {number}: {way}: {run.rows / run.seconds:,.0f} rows/s")
            if number:
                runs[way].append(run)
    return _rows(name, runs)


def _rows(name: str, runs: dict[str, list[Run]]) -> list[Measured]:
    rates = {way: [run.rows / run.seconds for run in done] for way, done in runs.items()}
    costs = {way: [run.cpu_s / run.rows * 1e6 for run in done] for way, done in runs.items()}
    found = []
    for beside, goal in ((SPARK, 1.0), (DEDUPLICATED, None)):
        found.append(measured(name, rates[SEMEL], rates[beside], beside=beside, unit="rows/s", goal=goal))
    cost = measured(name, costs[SEMEL], costs[SPARK], beside=SPARK, unit="CPU s a million rows", less_is_better=True)
    return [*found, cost]


def _parts(stage: Stage, rounds: int, share: float, tell: Callable[[str], None]) -> list[Measured]:
    """Source alone, sink alone, and what a batch of one row takes."""
    rows, ones, sink = "source-alone", "source-of-ones", "sink-alone"
    stage.create(rows, ones, sink)
    count = max(int(_TOTAL_ROWS * share), 1000)
    stage.fill(rows, count, 100)
    stage.fill(ones, 2 * 12, 100)
    cases: dict[str, tuple[str | None, str | None, int]] = {
        "source alone, 100 B": (rows, None, count),
        "sink alone, 100 B": (None, sink, count),
        "a batch of one row": (ones, sink, 2),
    }
    found = []
    for name, (source, target, batch_rows) in cases.items():
        work = partial(_part, stage, name, source, target, batch_rows, rounds, tell)
        found += steady(work(), work, tell)
    return found


def _part(
    stage: Stage,
    name: str,
    source: str | None,
    sink: str | None,
    batch_rows: int,
    rounds: int,
    tell: Callable[[str], None],
) -> list[Measured]:
    runs: dict[str, list[Run]] = {SEMEL: [], SPARK: []}
    for number in range(rounds + 1):
        for way, done in runs.items():
            run = stage.run(way, source, sink, batch_rows)
            tell(f"{name}, round {number}: {way}: {run.seconds:.2f} s for {len(run.batches)} batches")
            if number:
                done.append(run)
    if batch_rows == 2:
        typical = {way: [statistics.median(run.batches) * 1000 for run in done] for way, done in runs.items()}
        return [measured(name, typical[SEMEL], typical[SPARK], beside=SPARK, unit="ms", less_is_better=True)]
    rates = {way: [run.rows / run.seconds for run in done] for way, done in runs.items()}
    return [measured(name, rates[SEMEL], rates[SPARK], beside=SPARK, unit="rows/s", goal=1.0)]


def _latencies(stage: Stage, address: str, rounds: int, share: float, tell: Callable[[str], None]) -> list[Measured]:
    halves: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in (SEMEL, SPARK)}
    for _ in range(min(rounds, 3)):
        for way, (middle, late) in halves.items():
            number = next(_numbers)
            source, sink = f"timed-{number}-{way}", f"timed-out-{number}-{way}"
            stage.create(source, sink)
            found = latency(stage, address, way, source, sink, _LATENCY_ROWS, max(_LATENCY_S * share, 5))
            tell(f"produced to readable, {way}: p50 {found.p50_ms:.0f} ms, p99 {found.p99_ms:.0f} ms")
            middle.append(found.p50_ms)
            late.append(found.p99_ms)
    name = f"produced to readable, {_LATENCY_ROWS:,} rows/s"
    return [
        measured(f"{name}, p{cut}", halves[SEMEL][at], halves[SPARK][at], beside=SPARK, unit="ms", less_is_better=True)
        for at, cut in enumerate((50, 99))
    ]


def _kills(stage: Stage, address: str, connector: str, share: float, tell: Callable[[str], None]) -> list[Measured]:
    sinks = {SEMEL: "killed-semel", SPARK: "killed-spark"}
    stage.create("killed", *sinks.values())
    kills = _KILLS if share >= 1 else 1
    done = killed(address, connector, "killed", sinks, kills, _SEED, tell)
    for way, one in done.items():
        if one.lost:
            raise RuntimeError(f"{way} has lost {one.lost} records")
    ours, theirs = done[SEMEL], done[SPARK]
    return [
        measured(
            "from driver kill to the next record",
            ours.restart_s,
            theirs.restart_s,
            beside=SPARK,
            unit="s",
            less_is_better=True,
        ),
        Measured(f"duplicates after {kills} kills", ours.duplicated, theirs.duplicated, SPARK, "records", 0.0),
    ]
