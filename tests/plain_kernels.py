"""A compiled module of `records` as plain Python, for the tests that run on both."""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from semel.records import batch


def plain(name: str) -> ModuleType:
    """Loaded from its source even if it is compiled."""
    loader = SourceFileLoader(f"plain_{name}", str(Path(batch.__file__).with_name(f"{name}.py")))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    assert not module.compiled
    return module
