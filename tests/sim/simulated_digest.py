"""Runs seeds of the simulated world and prints a digest of each: `python simulated_digest.py [--plain] SEED...`.

`--plain` runs the record kernel as it is written, in Python, although it is compiled.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import semel.records


def use_plain_kernel() -> None:
    name = "semel.records.kernel"
    spec = importlib.util.spec_from_file_location(name, Path(semel.records.__file__).with_name("kernel.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def main(arguments: list[str]) -> None:
    is_plain = arguments[:1] == ["--plain"]
    if is_plain:
        use_plain_kernel()
    from semel.records import kernel
    from semel.sim.world.schedule import drawn
    from semel.sim.world.simulation import simulate

    assert not (is_plain and kernel.compiled)
    for seed in map(int, arguments[is_plain:]):
        print(seed, simulate(drawn(seed)).digest(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
