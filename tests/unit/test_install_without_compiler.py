"""An install where there is no C compiler: slower, but it works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_compiler_that_fails_does_not_fail_the_build(tmp_path):
    source = ROOT / "src/semel"
    compiled = [path for pattern in ("*kernel.py", "*kernel.pxd", "*.pyx") for path in source.rglob(pattern)]
    for path in (ROOT / "setup.py", *compiled):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    for folder in {source, *(path.parent for path in compiled)}:
        (tmp_path / folder.relative_to(ROOT) / "__init__.py").touch()
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", "built"]
    environment = {**os.environ, "CC": "/bin/false"}
    built = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    assert "/bin/false" in built.stderr + built.stdout
    assert not list(tmp_path.rglob("*.so"))
