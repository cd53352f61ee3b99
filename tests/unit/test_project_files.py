"""Files about the project say what is so: one version, and the same checks before a commit as in `make lint`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from semel.version import VERSION

ROOT = Path(__file__).parents[2]


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "semel.version.VERSION"}
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", VERSION)
    assert '== "' + VERSION not in (ROOT / "setup.py").read_text()


def test_what_runs_before_a_commit_is_what_make_lint_runs() -> None:
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert lint is not None
    wanted = {line.replace("@$(BIN)/", "").replace(" .", "").strip() for line in lint[1].splitlines()}
    entries = re.findall(r"entry: \.venv/bin/(.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert {entry.replace(" --force-exclude", "") for entry in entries} == wanted


def test_every_compiled_part_is_built_tried_in_a_wheel_and_in_the_makefile() -> None:
    source = ROOT / "src/semel"
    parts = {
        path.relative_to(source).with_suffix("").as_posix().replace("/", ".")
        for pattern in ("*/*kernel.py", "host/_*.pyx")
        for path in source.glob(pattern)
    }
    tried = set(re.findall(r'^    "([a-z._]+)",$', (ROOT / ".ci/try_wheel.py").read_text(), re.MULTILINE))
    assert tried == parts
    made = re.search(r"COMPILED := \$\(addprefix src/semel/,(.*)\)", (ROOT / "Makefile").read_text())
    assert made is not None
    assert {part.rpartition(".")[0].replace("/", ".") for part in made[1].split()} == parts
