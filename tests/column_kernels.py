"""The kernels behind Arrow columns, compiled or as plain Python, for the tests that run on both."""

from __future__ import annotations

from types import ModuleType

import pytest

from plain_kernels import plain
from semel.records import column_input, column_kernel, columns, kernel, partitioning

PLAIN_KERNEL = plain("kernel")
PLAIN_COLUMN_KERNEL = plain("column_kernel")
both_are_compiled: bool = kernel.compiled and column_kernel.compiled


def use(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Lets columns and partitioning run on the one kernel or the other; returns the column kernel in use."""
    if compiled:
        if not both_are_compiled:
            pytest.skip("the kernels are not compiled here")
        return column_kernel
    monkeypatch.setattr(columns, "kernel", PLAIN_KERNEL)
    for module in (columns, column_input, partitioning):
        monkeypatch.setattr(module, "column_kernel", PLAIN_COLUMN_KERNEL)
    return PLAIN_COLUMN_KERNEL
