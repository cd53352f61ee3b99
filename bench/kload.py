"""The neutral load generator, where its source is there: built outside the tree, the same command for every broker."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from brokers import Node

SOURCE = Path(__file__).parents[2] / "shared" / "bench" / "kload.c"
_OUTPUT = re.compile(
    r"(?P<requests>\S+) req/s (?P<records>\S+) rec/s (?P<megabytes>\S+) MB/s p50=(?P<p50>\d+)us p99=(?P<p99>\d+)us"
    r".* errs=(?P<errors>\d+) MB=(?P<sum>\S+) reqs=(?P<count>\d+)"
)

_FIGURES = ("requests", "records", "megabytes", "p50", "p99")


class Loaded(NamedTuple):
    requests: float
    records: float
    megabytes: float
    p50_us: float
    p99_us: float
    cpu_s_per_gb: float
    sum_megabytes: float
    cpu_us_per_request: float


def skip_reason() -> str | None:
    if not SOURCE.exists():
        return "the source of kload is not there"
    return None if shutil.which("gcc") else "kload needs gcc"


@cache
def _program() -> str:
    program = Path(tempfile.mkdtemp(prefix="semel-kload-")) / "kload"
    subprocess.run(["gcc", "-O2", "-msse4.2", "-o", str(program), str(SOURCE)], check=True)
    return str(program)


def load(node: Node, topic: str, *options: str, seconds: float, partitions: int = 4) -> Loaded:
    """`options` as kload has them: -m 0 produce or 1 fetch, -c connections, -k in flight, -r records, -v bytes."""
    before_s = node.cpu_s()
    command = [
        _program(),
        *options,
        "-n",
        str(partitions),
        "-t",
        topic,
        "-p",
        str(node.process.port),
        "-d",
        str(seconds),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    cpu_s = node.cpu_s() - before_s
    told = _OUTPUT.search(done.stdout)
    if told is None or int(told["errors"]):
        raise RuntimeError(f"kload on {node.name}: {done.stdout}{done.stderr}")
    requests, records, rate, p50, p99 = (float(told[name]) for name in _FIGURES)
    megabytes, count = max(float(told["sum"]), 1e-6), max(int(told["count"]), 1)
    return Loaded(requests, records, rate, p50, p99, cpu_s / megabytes * 1000, megabytes, cpu_s / count * 1e6)
