"""Runs seeds of the simulated world and prints a digest of each: `python simulated_digest.py [--plain] SEED...`.

`--plain` runs the kernels as they are written, in Python, although they are compiled.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from plain_kernels import ALL, use_plain_kernels


def main(arguments: list[str]) -> None:
    is_plain = arguments[:1] == ["--plain"]
    if is_plain:
        use_plain_kernels()
    from semel.sim.world.schedule import drawn
    from semel.sim.world.simulation import simulate

    assert all(importlib.import_module(f"semel.{kernel}").compiled is not is_plain for kernel in ALL)
    for seed in map(int, arguments[is_plain:]):
        print(seed, simulate(drawn(seed)).digest(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
