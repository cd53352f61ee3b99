"""The Python client beside confluent-kafka, aiokafka and kafka-python: the same work, on the same broker, in one run.

Clients take turns, several rounds each; a row is the median of its rate and the ratio to another row of the same run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from measured import Measured, measured
from repeats import steady

_WORKER = Path(__file__).with_name("client_workers.py")
_TIMEOUT_S = 300


class Row(NamedTuple):
    """What is measured, beside what, and how many times as fast it is meant to be."""

    worker: str
    beside: str
    goal: float | None = None


# How many records make a run of about a second or two, by client: records of 100 bytes, of 1 KB.
COUNTS = {
    "semel_produce": (800_000, 250_000),
    "semel_sync_produce": (500_000, 200_000),
    "semel_columns_produce": (4_000_000, 800_000),
    "confluent_produce": (800_000, 250_000),
    "aiokafka_produce": (150_000, 80_000),
    "kafka_python_produce": (80_000, 50_000),
    "semel_consume": (2_000_000, 500_000),
    "semel_iterate": (2_000_000, 500_000),
    "semel_sync_consume": (2_000_000, 500_000),
    "semel_columns_consume": (4_000_000, 800_000),
    "confluent_consume": (1_000_000, 300_000),
    "aiokafka_consume": (300_000, 150_000),
    "aiokafka_iterate": (200_000, 100_000),
    "kafka_python_consume": (300_000, 150_000),
}
PRODUCING = [
    Row("semel_produce", "aiokafka_produce", 3.0),
    Row("semel_produce", "kafka_python_produce", 10.0),
    Row("semel_produce", "confluent_produce"),
    Row("semel_sync_produce", "kafka_python_produce", 10.0),
    Row("semel_columns_produce", "confluent_produce", 3.0),
]
CONSUMING = [
    Row("semel_consume", "aiokafka_consume", 3.0),
    Row("semel_iterate", "aiokafka_iterate", 3.0),
    Row("semel_consume", "kafka_python_consume", 10.0),
    Row("semel_sync_consume", "kafka_python_consume", 10.0),
    Row("semel_consume", "confluent_consume"),
    Row("semel_columns_consume", "confluent_consume", 3.0),
]


def measure(
    address: str, rows: list[Row], sizes: dict[int, str], rounds: int, share: float, told: Callable[[str], None]
) -> list[Measured]:
    """Rates of all workers named in the rows, for values of each size; `sizes` says into or out of which topic."""
    found: list[Measured] = []
    for place, (size, topic) in enumerate(sizes.items()):

        def rows_of(rows: list[Row], place: int = place, size: int = size, topic: str = topic) -> list[Measured]:
            workers = list(dict.fromkeys(name for row in rows for name in (row.worker, row.beside)))
            rates: dict[str, list[float]] = {name: [] for name in workers}
            for number in range(rounds):
                for name in workers:
                    count = max(int(COUNTS[name][place] * share), 20_000)
                    rates[name].append(count / _run(name, address, topic, count, size))
                    told(f"{name} {size} B, round {number + 1} of {rounds}: {rates[name][-1]:,.0f} records/s")
            return [_measured(row, size, rates) for row in rows]

        for row, one in zip(rows, rows_of(rows), strict=True):
            found += steady([one], partial(rows_of, [row]), told)
    return found


def _measured(row: Row, size: int, rates: dict[str, list[float]]) -> Measured:
    mine, other = rates[row.worker], rates[row.beside]
    return measured(f"{row.worker}, {size} B", mine, other, beside=row.beside, unit="records/s", goal=row.goal)


def _run(name: str, address: str, topic: str, count: int, size: int) -> float:
    command = [sys.executable, str(_WORKER), name, address, topic, str(count), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])
