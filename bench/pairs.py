"""`make pairs BEFORE=COMMIT`: what a request costs the broker, in this tree beside an earlier commit of it.

Both are started from their own trees and take the same load in turns. A figure is the CPU of the whole broker process,
which says more than time on a machine with few cores. What counts is the ratio within a pair: the table has its mean
over all pairs with a 95 % interval.

Made for a machine that does other work, too: a turn takes a quarter of a second, a pair has several turns of each in
the order 1 2 2 1, clients are there before the first of them, both processes are new after every two pairs, and the
pairs that differ most, as many above as below, do not count in the mean.
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
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import load_generator
import memory
from broker import LOADS
from brokers import SEMEL_SETTINGS, Node
from cases import Progress
from load_generator import Fetch
from transactor import Transactor

from real_broker import RealBroker

ROOT = Path(__file__).parents[1]
_PARTITIONS = 4
_FILLING_S = 1.0
_NEEDED_BYTES = 256 << 20
_PAIRS_OF_A_PROCESS = 2
# Of the pairs, so many do not count at either end.
_TRIMMED = 0.1
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
    """The geometric mean of ratios without the outermost, and its interval by resampling (the same for the same
    ratios)."""
    logarithms = [math.log(ratio) for ratio in ratios]
    dice = random.Random(0)
    means = sorted(_mean(dice.choices(logarithms, k=len(logarithms))) for _ in range(_RESAMPLES))
    low, high = means[int(_RESAMPLES * 0.025)], means[int(_RESAMPLES * 0.975)]
    return Interval(math.exp(_mean(logarithms)), math.exp(low), math.exp(high))


def _mean(values: Sequence[float]) -> float:
    left_out = int(len(values) * _TRIMMED)
    return statistics.fmean(sorted(values)[left_out : len(values) - left_out])


def main() -> int:
    parser = argparse.ArgumentParser(prog="make pairs", description=__doc__)
    parser.add_argument("before", help="a commit, or a folder with a tree that is set up already")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--turns", type=int, default=4, help="of each tree in a pair (default 4)")
    parser.add_argument("--seconds", type=float, default=0.25, help="of a turn (default 0.25)")
    parser.add_argument("--rows", default="", help=f"rows with these words in their name, of: {', '.join(ROWS)}")
    options = parser.parse_args()
    chosen = [row for row in ROWS if options.rows.lower() in row.lower()]
    if not chosen:
        parser.error(f"no row has {options.rows!r} in its name; there are: {', '.join(ROWS)}")
    python = _python_of(options.before)
    print("| CPU of the broker | before | now | now : before |\n|---|---|---|---|", flush=True)
    progress = Progress(len(chosen) * options.pairs)
    for row in chosen:
        with closing(Work({"before": python, "now": Path(sys.executable)}, row, options.seconds)) as work:
            found = _paired(row, work, options.pairs, options.turns, progress)
        print(_line(row, found), flush=True)
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


class Work:
    """What both do for one row, in processes that are renewed: how a process lies in memory is luck, and makes one of
    them cheaper by some percent as long as it lives."""

    def __init__(self, pythons: dict[str, Path], row: str, seconds: float) -> None:
        self.nodes: list[Node] = []
        self._pythons = pythons
        self._seconds = seconds
        self._load = LOADS[row].work if row in LOADS else None
        self.topic = "".join(letter if letter.isalnum() else "-" for letter in row)
        self._running = ExitStack()
        self._transactors: dict[str, Transactor] = {}

    def renew(self) -> None:
        """Starts both anew, in directories of their own, and has them do something."""
        self.close()
        root = Path(self._running.enter_context(tempfile.TemporaryDirectory(prefix="semel-pairs-")))
        self.nodes = [_started(root / name, python, self._running) for name, python in self._pythons.items()]
        for node in self.nodes:
            node.create(self.topic, _PARTITIONS)
            if isinstance(self._load, Fetch):
                load_generator.load(node, self.topic, LOADS["produce 1 KB"].work, seconds=_FILLING_S)
            if self._load is None:
                self._transactors[node.name] = Transactor(node.address, self.topic)
        memory.fetch_back(_NEEDED_BYTES)
        for node in self.nodes:
            self.turn(node)

    def turn(self, node: Node) -> tuple[float, int]:
        """Seconds of CPU, and what was done with them."""
        begin_s = _cpu_s(node)
        if self._load is None:
            count = self._transactors[node.name].run(self._seconds)
        else:
            count = load_generator.load(node, self.topic, self._load, seconds=self._seconds).sum_requests
        return _cpu_s(node) - begin_s, count

    def close(self) -> None:
        self._transactors.clear()
        self._running.close()


def _paired(row: str, work: Work, pairs: int, turns: int, tell: Progress) -> list[tuple[float, float]]:
    """Microseconds of CPU for a request or a transaction, before and now, for each pair."""
    found = []
    for number in range(pairs):
        if number % _PAIRS_OF_A_PROCESS == 0:
            work.renew()
        sums = {node.name: [0.0, 0] for node in work.nodes}
        for turn in range(turns):
            for node in work.nodes if (number + turn) % 2 else reversed(work.nodes):
                cpu_s, count = work.turn(node)
                sums[node.name][0] += cpu_s
                sums[node.name][1] += count
        before, now = (cpu_s / count * 1e6 for cpu_s, count in sums.values())
        found.append((before, now))
        tell(f"{row}: before {before:,.1f} us, now {now:,.1f} us")
    return found


def _cpu_s(node: Node) -> float:
    """CPU of the process so far, to the nanosecond; /proc counts in ticks of ten milliseconds."""
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(node.process.pid, ctypes.byref(clock)):
        raise ProcessLookupError(f"{node.name} has ended")
    return time.clock_gettime(clock.value)


if __name__ == "__main__":
    sys.exit(main())
