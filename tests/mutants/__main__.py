"""`make mutants`: changes the code that carries exactly-once in one small way after another: does a test notice?

A sample is drawn by a seed. Who survives is killed by a new test, or explained in survivors.toml. It can be
interrupted at any time, or given a number of seconds: the next run goes on. Exit code 1: somebody survives; 2: a test
fails without any change; 3: some are not tried yet.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from mutant_copy import refresh
from mutant_ledger import Ledger, table
from mutant_rooms import ROOMS, TREE, WORK
from mutant_sites import Mutant, control, sample
from mutant_touching import touched, unmeasured
from mutant_trials import SURVIVED

BROKEN, UNFINISHED = 2, 3
HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--each", type=int, default=65, metavar="N", help="mutants of each room (default 65)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default 1)")
    parser.add_argument("--room", choices=[*ROOMS], action="append", help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after about so long; the next run goes on")
    parser.add_argument("--same-copy", action="store_true", help="of the tree as it was in the run before")
    parser.add_argument("--measured", action="store_true", help="ask only the tests that are measured so far")
    options = parser.parse_args()
    until_s = time.monotonic() + options.seconds
    WORK.mkdir(parents=True, exist_ok=True)
    alone = (WORK / "lock").open("w")
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if not options.same_copy:
        refresh()
    if unmeasured() and not options.measured:
        run("mutant_touching.py", str(until_s - time.monotonic()))
        if unmeasured():
            print(f"{len(unmeasured())} test files are still to be measured: run it again")
            return UNFINISHED
    mutants = {room: sample(room, options.each, options.seed) for room in options.room or ROOMS}
    ledger = Ledger(touched())
    for room, drawn in mutants.items():
        print(f"{room}: {len(ledger.untried(drawn))} of {len(drawn)} to be tried", flush=True)
        unchanged = control(room)
        try_functions(ledger, [unchanged, *drawn], until_s)
        try_imports(ledger, drawn, until_s)
        if ledger.verdict(unchanged) not in (None, SURVIVED):
            print(f"{unchanged.file} is {ledger.verdict(unchanged)} without a change: no verdict counts")
            return BROKEN
    print(table(mutants, ledger))
    for drawn in mutants.values():
        for mutant in ledger.unexplained(drawn):
            print(ledger.story(mutant))
    if any(ledger.untried(drawn) for drawn in mutants.values()):
        return UNFINISHED
    return 1 if any(ledger.unexplained(drawn) for drawn in mutants.values()) else 0


def try_functions(ledger: Ledger, drawn: list[Mutant], until_s: float) -> None:
    """All in one process."""
    waiting = [mutant for mutant in ledger.untried(drawn) if mutant.function]
    if waiting and time.monotonic() < until_s:
        trial(ledger, waiting, until_s, in_place=False)


def try_imports(ledger: Ledger, drawn: list[Mutant], until_s: float) -> None:
    """One by one: the mutant is in the copy while its process runs."""
    for mutant in ledger.untried(drawn):
        if time.monotonic() > until_s:
            return
        if mutant.function and not ledger.is_impossible(mutant):
            continue
        path = TREE / mutant.file
        original, status = path.read_text(), path.stat()
        path.write_text(mutant.mutated())
        try:
            trial(ledger, [mutant], until_s, in_place=True)
        finally:
            path.write_text(original)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def trial(ledger: Ledger, mutants: list[Mutant], until_s: float, *, in_place: bool) -> None:
    job, results = WORK / "job.json", WORK / "results.jsonl"
    results.write_text("")
    job.write_text(ledger.job(mutants, in_place=in_place))
    try:
        run("mutant_trials.py", str(job), str(results), str(until_s - time.monotonic()))
    finally:
        ledger.note(results, mutants)


def run(script: str, *arguments: str) -> None:
    paths = os.pathsep.join([str(TREE / "src"), str(HERE)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    subprocess.run([sys.executable, str(HERE / script), *arguments], cwd=TREE, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
