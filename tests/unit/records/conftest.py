"""Every test of this room runs twice: on the compiled kernel, and on the same source as plain Python."""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from semel.records import batch, build, compact, compression, kernel, read


def _plain_kernel() -> ModuleType:
    loader = SourceFileLoader("semel_records_kernel_plain", str(Path(batch.__file__).with_name("kernel.py")))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    assert not module.compiled
    return module


PLAIN = _plain_kernel()


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def any_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if request.param == "compiled":
        if not kernel.compiled:
            pytest.skip("the kernel is not compiled here")
        return kernel
    for module in (batch, build, compact, read):
        monkeypatch.setattr(module, "kernel", PLAIN)
    monkeypatch.setattr(compression, "unfilled", PLAIN.unfilled)
    return PLAIN
