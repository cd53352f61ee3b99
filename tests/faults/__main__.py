"""`make faults`: kills, pauses and cuts on three brokers, until there were enough, with clients of three kinds.

Ours, librdkafka's and Kafka's Java clients write, with and without transactions, and pipe from one topic to another;
what all of them saw is one history, which is judged, and all replicas are compared. Exit code 1: something is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from foreign_check import LIBRARIES, one_round


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many faults (default 300)")
    parser.add_argument("--seconds", type=float, default=150.0, help="how long a round works (default 150)")
    parser.add_argument("--library", choices=LIBRARIES, action="append", help="whose clients beside ours; default all")
    parser.add_argument("--seed", type=int, help="repeat the choices of one round")
    options = parser.parse_args()
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    wrong = rounds = 0
    began_s = time.monotonic()
    while faults.total() < options.count:
        found = one_round(options.seconds, options.library or LIBRARIES, options.seed)
        rounds += 1
        faults += found.faults
        counts += found.counts
        struck += found.struck
        problems = [*found.wrong, *found.complaints]
        for text in problems:
            print(f"seed {found.seed}: {text}", flush=True)
        if problems:
            wrong += 1
            print(f"seed {found.seed}: what is there is in {found.directory}", flush=True)
        minutes = (time.monotonic() - began_s) / 60
        for told in found.turns:
            print(f"{told.node}: {told.count} turns over 5 ms of the processor, longest {told.longest_ms} ms")
        print(f"round {rounds}, {minutes:.1f} min: {faults.total()} faults, {dict(counts)}", flush=True)
        if options.seed is not None:
            break
    print(json.dumps({"rounds": rounds, "wrong": wrong, "faults": faults, "struck": struck, "counts": counts}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
