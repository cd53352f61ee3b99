"""Compiled modules as plain Python, for the tests that run on both."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace

import semel

ALL = (
    "records.kernel",
    "records.column_kernel",
    "log.index_kernel",
    "log.row_kernel",
    "log.append_kernel",
    "log.ordinary_kernel",
    "rpc.served_kernel",
    "replication.term_kernel",
    "broker.lane_kernel",
)
"""Each is used by some that follow."""
PRODUCE = (
    "log.row_kernel",
    "log.append_kernel",
    "log.ordinary_kernel",
    "replication.term_kernel",
    "broker.lane_kernel",
)
"""A produce, from its bytes to its answer."""


def plain(name: str, room: str = "records") -> ModuleType:
    """One module, loaded from its source even if it is compiled."""
    return _loaded(f"{room}.{name}", f"plain_{name}")


def use_plain_kernels() -> None:
    """From now on this process runs no compiled kernel. To be called before anything else of ours is imported."""
    for kernel in ALL:
        name = f"semel.{kernel}"
        sys.modules[name] = _loaded(kernel, name)


def produce_kernels() -> list[SimpleNamespace]:
    """All that the kernels of a produce define, once plain and, if they are compiled, once more as they are."""
    names = [f"semel.{kernel}" for kernel in PRODUCE]
    installed = [importlib.import_module(name) for name in names]
    plain_ones = []
    try:
        for kernel, name in zip(PRODUCE, names, strict=True):
            sys.modules[name] = _loaded(kernel, name)  # where those that follow find it
            plain_ones.append(sys.modules[name])
    finally:
        for name, module in zip(names, installed, strict=True):
            sys.modules[name] = module
    are_compiled = all(module.compiled for module in installed)
    return [_together(modules) for modules in ([plain_ones, installed] if are_compiled else [plain_ones])]


def _together(modules: list[ModuleType]) -> SimpleNamespace:
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


def _loaded(kernel: str, name: str) -> ModuleType:
    path = Path(semel.__file__).parent.joinpath(*kernel.split(".")).with_suffix(".py")
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    assert not module.compiled
    return module
