"""`make pairs BEFORE=COMMIT`: what a request costs the broker, in this tree beside an earlier commit of it.

Both are started from their own trees and take the same load in turns, first one and then the other, pair by pair. A
figure is the CPU of the whole broker process, which says more than time on a machine with few cores. What counts is the
ratio within a pair: the table has its mean over all pairs with a 95 % interval.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import load_generator
from broker import LOADS
from broker_clients import worker
from brokers import SEMEL_SETTINGS, Node
from cases import Progress
from fresh_topic import fresh_topic
from load_generator import Fetch

from real_broker import RealBroker

ROOT = Path(__file__).parents[1]
_PARTITIONS = 4
_FILLING_S = 3.0
_NEEDED_BYTES = 1 << 30
_RESAMPLES = 10_000
_LOADS = ("one record a request, 8 connections", "produce 1 KB", "produce 100 B", "fetch")
_TRANSACTIONS = "transactions of 1 record"
ROWS = (*_LOADS, _TRANSACTIONS)


class Interval(NamedTuple):
    """A mean ratio, and where it lies with a confidence of 95 %."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


def interval(ratios: Sequence[float]) -> Interval:
    """The geometric mean of ratios, and its interval by resampling (the same for the same ratios)."""
    logarithms = [math.log(ratio) for ratio in ratios]
    dice = random.Random(0)
    means = sorted(statistics.fmean(dice.choices(logarithms, k=len(logarithms))) for _ in range(_RESAMPLES))
    low, high = means[int(_RESAMPLES * 0.025)], means[int(_RESAMPLES * 0.975)]
    return Interval(math.exp(statistics.fmean(logarithms)), math.exp(low), math.exp(high))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make pairs", description=__doc__)
    parser.add_argument("before", help="a commit, or a folder with a tree that is set up already")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each load")
    parser.add_argument("--rows", default="", help=f"rows with these words in their name, of: {', '.join(ROWS)}")
    options = parser.parse_args()
    chosen = [row for row in ROWS if options.rows.lower() in row.lower()]
    if not chosen:
        parser.error(f"no row has {options.rows!r} in its name; there are: {', '.join(ROWS)}")
    python = _python_of(options.before)
    print("| CPU of the broker | before | now | now : before |\n|---|---|---|---|", flush=True)
    progress = Progress(len(chosen) * options.pairs)
    with tempfile.TemporaryDirectory(prefix="semel-pairs-") as root, ExitStack() as running:
        before = _started(Path(root) / "before", python, running)
        now = _started(Path(root) / "now", Path(sys.executable), running)
        for row in chosen:
            print(_line(row, _paired(row, before, now, options.pairs, options.seconds, progress)), flush=True)
    return 0


def _line(row: str, pairs: Sequence[tuple[float, float]]) -> str:
    middle = [statistics.median(side) for side in zip(*pairs, strict=True)]
    ratio = interval([now / before for before, now in pairs])
    return f"| {row} | {middle[0]:,.1f} us | {middle[1]:,.1f} us | {ratio} |"


def _python_of(before: str) -> Path:
    """The interpreter of a set-up tree; a commit is checked out and set up below build/ once."""
    tree = Path(before)
    if not tree.is_dir():
        commit = _run("git", "rev-parse", "--verify", f"{before}^{{commit}}").strip()
        tree = ROOT / "build" / "pairs" / commit
        if not tree.is_dir():
            print(f"setting up {commit[:10]} in {tree} (once; a minute or so)", file=sys.stderr)
            _run("git", "worktree", "add", "--detach", "--force", str(tree), commit)
    python = tree / ".venv" / "bin" / "python"
    if not python.exists():
        venv.create(tree / ".venv", with_pip=True)
        _run(str(python), "-m", "pip", "install", "--quiet", "--editable", str(tree))
    return python.absolute()


def _run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def _started(root: Path, python: Path, running: ExitStack) -> Node:
    root.mkdir()
    broker = RealBroker(root, flush="os", settings=SEMEL_SETTINGS, python=str(python))
    running.callback(broker.reap)
    broker.start()
    return Node(root.name, broker, root)


def _paired(row: str, before: Node, now: Node, pairs: int, seconds: float, tell: Progress) -> list[tuple[float, float]]:
    """Microseconds of CPU for a request or a transaction, before and now, for each pair."""
    load = LOADS[row].work if row in LOADS else None
    topic = "".join(letter if letter.isalnum() else "-" for letter in row)
    reads = isinstance(load, Fetch)
    for node in (before, now) if reads else ():
        node.create(topic, _PARTITIONS)
        load_generator.load(node, topic, LOADS["produce 1 KB"].work, seconds=_FILLING_S)

    def cost(node: Node, where: str) -> float:
        begin_s = _cpu_s(node)
        if load is None:
            done = worker(node, where, "transactions", "1", str(seconds))
            count = done["a_second"] * seconds
        else:
            count = load_generator.load(node, where, load, seconds=seconds).sum_requests
        return (_cpu_s(node) - begin_s) / count * 1e6

    def turn(node: Node, number: int) -> float:
        if reads:
            return cost(node, topic)
        where = f"{topic}-{number}"
        with fresh_topic(node, where, _PARTITIONS, _NEEDED_BYTES):
            return cost(node, where)

    found = []
    for number in range(pairs + 1):  # the first warms up
        order = (before, now) if number % 2 else (now, before)
        costs = {node.name: turn(node, number) for node in order}
        if number:
            found.append((costs["before"], costs["now"]))
            tell(f"{row}: before {costs['before']:,.1f} us, now {costs['now']:,.1f} us")
    return found


def _cpu_s(node: Node) -> float:
    """CPU of the process so far, to the nanosecond; /proc counts in ticks of ten milliseconds."""
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(node.process.pid, ctypes.byref(clock)):
        raise ProcessLookupError(f"{node.name} has ended")
    return time.clock_gettime(clock.value)


if __name__ == "__main__":
    sys.exit(main())
