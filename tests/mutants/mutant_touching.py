"""Measures which test runs which line of the rooms, and how long it takes. Runs as a process of its own, in the copy.

What is found is kept by test file, and holds as long as that file and the files of the rooms that it ran are the same:
an interrupted measurement goes on where it was, and a new test costs only itself. Tests that fail without any mutant
are left out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from coverage import Coverage
from mutant_rooms import NOT_ASKED, TREE, WORK, all_files, asked_files
from mutant_sites import digest

KEPT = WORK / "touched"
Touched = dict[str, dict[str, Any]]
"""By test: seconds, and its lines by file."""
DETERMINED = ["-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:terminal"]
PYTEST = [*DETERMINED, "-m", f"not ({NOT_ASKED})", f"--basetemp={WORK}/temporary", "--rootdir", str(TREE)]


def unmeasured() -> list[str]:
    now = _digests()
    return [name for name in asked_files() if _kept(name, now) is None]


def touched() -> Touched:
    now = _digests()
    found: Touched = {}
    for name in asked_files():
        found |= _kept(name, now) or {}
    return found


def _stored(test_file: str) -> Path:
    return KEPT / f"{digest(test_file, (TREE / test_file).read_text())}.json"


def _kept(test_file: str, now: dict[str, str]) -> Touched | None:
    """None: it is not measured, or something that it runs has changed since."""
    path = _stored(test_file)
    if not path.exists():
        return None
    row = json.loads(path.read_text())
    is_the_same = all(now.get(name) == then for name, then in row["ran"].items())
    return cast(Touched, row["tests"]) if is_the_same else None


def _keep(test_file: str, tests: Touched) -> None:
    now = _digests()
    ran = {name: now[name] for row in tests.values() for name in row["lines"]}
    KEPT.mkdir(parents=True, exist_ok=True)
    _stored(test_file).write_text(json.dumps({"ran": ran, "tests": tests}))


def _digests() -> dict[str, str]:
    return {name: digest((TREE / name).read_text()) for name in all_files()}


def same_every_time() -> None:
    """No fresh seeds: what is found today is found tomorrow. And no shrinking: that it fails is all we want to know."""
    from hypothesis import HealthCheck, Phase, settings

    os.environ["SEMEL_SIM_SEEDS"] = "0"
    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutants")


class Touching:
    def __init__(self, deadline_s: float, told: int) -> None:
        self._deadline_s = deadline_s
        self._told = told
        self._files = all_files()
        self._coverage = self._begin()
        self._tests: Touched = {}
        self._failed: set[str] = set()
        self._done = 0
        self.is_stopped = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
        self._coverage.switch_context(item.nodeid)
        began_s = time.monotonic()
        result = yield
        self._tests[item.nodeid] = {"seconds": round(time.monotonic() - began_s, 4), "lines": {}}
        self._coverage.switch_context("")
        here = _file_of(item)
        if nextitem is None or _file_of(nextitem) != here:
            self._note(here)
            self._done += 1
            os.write(self._told, f"\rmeasured {self._done} test files ".encode())
            if time.monotonic() > self._deadline_s:
                self.is_stopped = nextitem is not None
                item.session.shouldstop = "the time is over"
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self._failed.add(report.nodeid)

    def _begin(self) -> Coverage:
        coverage = Coverage(data_file=None, include=[str(TREE / name) for name in self._files], config_file=False)
        coverage.start()
        return coverage

    def _note(self, test_file: str) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        for name in self._files:
            for line, tests in data.contexts_by_lineno(str(TREE / name)).items():
                for test in tests:
                    if test in self._tests:
                        self._tests[test]["lines"].setdefault(name, []).append(line)
        kept = {test: row for test, row in self._tests.items() if row["lines"] and test not in self._failed}
        _keep(test_file, kept)
        self._tests = {}
        self._coverage = self._begin()


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


def main() -> int:
    same_every_time()
    files = unmeasured()
    touching = Touching(time.monotonic() + float(sys.argv[1]), os.dup(1))
    pytest.main([*PYTEST, *files], plugins=[touching])
    os.write(1, b"\n")
    if not touching.is_stopped:
        for name in unmeasured():  # none of their tests is asked
            _keep(name, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
