"""A compiled module as plain Python, for the tests that run on both."""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import semel


def plain(name: str, room: str = "records") -> ModuleType:
    """Loaded from its source even if it is compiled."""
    loader = SourceFileLoader(f"plain_{name}", str(Path(semel.__file__).parent / room / f"{name}.py"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    assert not module.compiled
    return module
