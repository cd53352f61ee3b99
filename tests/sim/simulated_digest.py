"""Runs seeds of the simulated world and prints a digest of each: `python simulated_digest.py [--plain] SEED...`.

`--plain` runs the kernels as they are written, in Python, although they are compiled.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import semel

KERNELS = ("records.kernel", "records.column_kernel", "log.index_kernel", "log.produce_kernel", "rpc.served_kernel")
"""The first is used by the others."""


def use_plain_kernels() -> None:
    for kernel in KERNELS:
        name = f"semel.{kernel}"
        path = Path(semel.__file__).parent.joinpath(*kernel.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


def main(arguments: list[str]) -> None:
    is_plain = arguments[:1] == ["--plain"]
    if is_plain:
        use_plain_kernels()
    from semel.sim.world.schedule import drawn
    from semel.sim.world.simulation import simulate

    assert all(importlib.import_module(f"semel.{kernel}").compiled is not is_plain for kernel in KERNELS)
    for seed in map(int, arguments[is_plain:]):
        print(seed, simulate(drawn(seed)).digest(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
