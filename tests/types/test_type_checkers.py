"""mypy --strict and pyright know the client: they take programs that are right, and find what is wrong in others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
PROGRAMS = [HERE / "right.py", HERE / "wrong.py"]
TIMEOUT_S = 280


def expected() -> set[tuple[str, int]]:
    """File and line of every error."""
    lines = (HERE / "wrong.py").read_text().splitlines()
    return {("wrong.py", number) for number, line in enumerate(lines, 1) if line.endswith("# WRONG")}


def found_by_mypy(cache: Path) -> dict[tuple[str, int], str]:
    options = ["--strict", "--no-error-summary", "--follow-imports=silent", "--cache-dir", str(cache)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", *options, *map(str, PROGRAMS)],
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    errors = re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return {(Path(path).name, int(line)): text for path, line, text in errors}


def found_by_pyright(directory: Path) -> dict[tuple[str, int], str]:
    for program in PROGRAMS:
        shutil.copy(program, directory)
    config = {"include": ["."], "extraPaths": [str(SOURCE)], "typeCheckingMode": "strict"}
    (directory / "pyrightconfig.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--project", str(directory), "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if not done.stdout.lstrip().startswith("{"):
        pytest.skip(f"pyright could not be fetched: {done.stderr.strip()[-300:]}")
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(PROGRAMS)
    return {
        (Path(entry["file"]).name, entry["range"]["start"]["line"] + 1): entry["message"]
        for entry in report["generalDiagnostics"]
    }


def test_mypy_finds_exactly_what_is_wrong(tmp_path: Path) -> None:
    found = found_by_mypy(tmp_path)
    assert found.keys() == expected(), found


def test_pyright_finds_exactly_what_is_wrong(tmp_path: Path) -> None:
    found = found_by_pyright(tmp_path)
    assert found.keys() == expected(), found


def test_the_types_of_settings_are_those_of_the_declarations() -> None:
    from semel.client.document_options import module

    assert (SOURCE / "semel/client/option_types.py").read_text() == module(), "make docs writes it"
