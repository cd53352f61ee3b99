"""The stubs of compiled modules say what is there: names, parameters and their defaults.

Kernels without a stub are checked by mypy as they are. These have C arrays in their signatures, or are Cython alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src"
STUBS = [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in sorted(SOURCE.rglob("*.pyi"))]


def stubtest(modules: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    options = ["--concise", "--ignore-disjoint-bases", "--ignore-unused-allowlist"]
    allowed = ["--allowlist", str(Path(__file__).parent / "stubs_allowed.txt")]
    command = [sys.executable, "-m", "mypy.stubtest", *modules, *options, *allowed]
    paths = {"MYPYPATH": f"{SOURCE}:{ROOT / 'typings'}", **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **paths}, check=False)


def test_every_stub_agrees_with_its_compiled_module() -> None:
    pytest.importorskip("mypy")
    modules = [name for name in STUBS if import_module(name).__file__.endswith(".so")]
    if not modules:
        pytest.skip("nothing is compiled here")
    told = stubtest(modules)
    assert told.returncode == 0, told.stdout + told.stderr


def test_a_parameter_that_a_stub_lacks_is_noticed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "kernel_with_stub.py").write_text("def largest(left: int, right: int) -> int:\n    return left\n")
    (tmp_path / "kernel_with_stub.pyi").write_text("def largest(left: int) -> int: ...\n")
    told = stubtest(["kernel_with_stub"], MYPYPATH=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert told.returncode == 1
    assert 'stub does not have parameter "right"' in told.stdout
