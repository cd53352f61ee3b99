"""The load generator: C in generator/, compiled at first use, the same command for every broker."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from brokers import Node

SOURCES = Path(__file__).parent / "generator"
_BUILT = Path(__file__).parents[1] / "build" / "bench"
_DRAIN_S = 60


class Produce(NamedTuple):
    """What it writes. `plain`: without a producer id. `rate`: requests a second of all connections; 0: closed loop."""

    connections: int = 4
    in_flight: int = 1
    records: int = 1
    value_bytes: int = 1000
    partitions: int = 4
    partitions_per_request: int = 1
    plain: bool = False
    rate: float = 0


class Fetch(NamedTuple):
    """What it reads, from the start to the end again and again."""

    connections: int = 4
    in_flight: int = 1
    max_bytes: int = 1 << 20
    partitions: int = 4
    partitions_per_request: int = 1
    sessions: bool = False
    rate: float = 0


class Loaded(NamedTuple):
    """Rates are those of the load's time. `cpu` is that of the broker; `sum_megabytes` counts to the last answer."""

    requests: float
    records: float
    megabytes: float
    p50_us: float
    p99_us: float
    p999_us: float
    unsent: int
    cpu_s_per_gb: float
    cpu_us_per_request: float
    sum_requests: int
    sum_records: int
    sum_megabytes: float


class NotLoaded(RuntimeError):
    """The load generator cannot be built, has failed, or was refused something by the broker."""


def skip_reason() -> str | None:
    return None if shutil.which("gcc") else "the load generator is in C, and gcc is not on the PATH"


@cache
def program() -> Path:
    """Where it is, compiled if its sources have changed."""
    sources = sorted(SOURCES.glob("*.[ch]"))
    content = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    built = _BUILT / f"load_generator-{content}"
    if not built.exists():
        reason = skip_reason()
        if reason is not None:
            raise NotLoaded(f"{reason}. Install it (Debian and Ubuntu: apt-get install gcc libc6-dev).")
        _BUILT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_BUILT) as place:
            # Several processes may come at once: each takes its own, whole one.
            made = Path(place) / "load_generator"
            command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", str(made), str(SOURCES / "main.c")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotLoaded(f"gcc cannot compile the load generator:\n{done.stderr[-3000:]}")
            os.replace(made, built)
    return built


def arguments(work: Produce | Fetch) -> list[str]:
    """Its command line: the name of the work, and an option for each field that is not left off."""
    found = [type(work).__name__.lower()]
    for name, value in work._asdict().items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            found.append(option)
        elif value:
            found += [option, str(value)]
    return found


def load(node: Node, topic: str, work: Produce | Fetch, *, seconds: float) -> Loaded:
    target = ["--topic", topic, "--port", str(node.process.port), "--seconds", str(seconds)]
    command = [str(program()), *arguments(work), *target]
    before_s = node.cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _DRAIN_S, check=False)
    cpu_s = node.cpu_s() - before_s
    if done.returncode:
        raise NotLoaded(f"the load on {node.name} has failed: {done.stderr.strip()}")
    return loaded(done.stdout, cpu_s)


def loaded(output: str, cpu_s: float) -> Loaded:
    """From the line that the load generator prints, and the CPU that the broker has used meanwhile."""
    from semel.wire.errors import ErrorCode

    try:
        told = json.loads(output)
    except ValueError as broken:
        raise NotLoaded(f"the load generator has printed no JSON: {output[-2000:]!r}") from broken
    if told["errors"]:
        raise NotLoaded(f"the broker has refused {told['errors']} times, first: {ErrorCode(told['first_error']).name}")
    if not told["requests"]:
        raise NotLoaded("the broker has answered nothing in the time of the load")
    megabytes = told["bytes"] / 1e6
    return Loaded(
        requests=told["requests_per_s"],
        records=told["records_per_s"],
        megabytes=told["bytes_per_s"] / 1e6,
        p50_us=told["p50_us"],
        p99_us=told["p99_us"],
        p999_us=told["p999_us"],
        unsent=told["unsent"],
        cpu_s_per_gb=cpu_s / max(megabytes, 1e-6) * 1000,
        cpu_us_per_request=cpu_s / told["requests"] * 1e6,
        sum_requests=told["requests"],
        sum_records=told["records"],
        sum_megabytes=megabytes,
    )
