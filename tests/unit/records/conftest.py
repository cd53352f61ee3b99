"""Every test of this room runs twice: on the compiled kernel, and on the same source as plain Python."""

from __future__ import annotations

from types import ModuleType

import pytest

from plain_kernels import plain
from semel.records import batch, build, compact, compression, kernel, read

PLAIN = plain("kernel")


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
