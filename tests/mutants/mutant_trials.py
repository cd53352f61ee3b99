"""Tries mutants: which of them does a test notice? Runs as a process of its own, in the copy.

Everything is imported and collected once. Each mutant is a fork of that in which the code of the changed functions is
exchanged in place, so that a trial costs milliseconds and its tests. What runs at import cannot be exchanged: such a
mutant is written into the copy and tried by a process that imports it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mutant_rooms import TREE
from mutant_touching import PYTEST, same_every_time

SLOWER = 5.0
PATIENCE_S = 8.0
"""A test has five times its time, and this: it may be a busy machine."""
MOST_BYTES = 4 << 30
KILLED, SURVIVED, TIMED_OUT, IMPOSSIBLE = "killed", "survived", "timed out", "impossible"
ADOPT_ORPHANS = 36
"""PR_SET_CHILD_SUBREAPER of Linux: what a fork has started and left behind becomes ours."""


class Trials:
    """A job is a row of mutants: file, path of the mutated source (None: it is in the copy), tests with seconds."""

    def __init__(self, job: list[dict[str, Any]], deadline_s: float, told: Callable[[dict[str, Any]], None]) -> None:
        self._job = job
        self._deadline_s = deadline_s
        self._told = told
        self._failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanted = {test for row in self._job for test, _ in row["tests"]}
        items[:] = [item for item in items if item.nodeid in wanted]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        for row in self._job:
            if time.monotonic() > self._deadline_s:
                break
            tests = [(test, seconds) for test, seconds in row["tests"] if test in items]
            began_s = time.monotonic()
            verdict, by = self._try(row, [(items[test], seconds) for test, seconds in tests], session)
            self._told(
                {
                    "identity": row["identity"],
                    "verdict": verdict,
                    "by": by,
                    "seconds": round(time.monotonic() - began_s, 1),
                }
            )
        return True

    def _try(
        self, row: dict[str, Any], tests: list[tuple[pytest.Item, float]], session: pytest.Session
    ) -> tuple[str, str]:
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(heard)
                self._run(row, [item for item, _ in tests], session, told)
            finally:
                os._exit(0)
        os.close(told)
        progress = _Progress(heard)
        if progress.hears("", PATIENCE_S):
            for item, seconds in tests:
                if not progress.hears(item.nodeid, SLOWER * seconds + PATIENCE_S):
                    break
        if progress.verdict == TIMED_OUT:
            os.kill(child, signal.SIGINT)
            progress.hears_the_end(PATIENCE_S)
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(heard)
        end_orphans()
        return progress.verdict, progress.last if progress.verdict != SURVIVED else ""

    def _run(self, row: dict[str, Any], items: list[pytest.Item], session: pytest.Session, told: int) -> None:
        """In the fork."""
        silence = os.open(os.devnull, os.O_RDWR)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        try:
            if row["source"] is not None:
                exchange(TREE / row["file"], Path(row["source"]).read_text())
        except (LookupError, ValueError) as error:
            os.write(told, f"{IMPOSSIBLE} {error}\n".encode())
            return
        os.write(told, b"passed\n")
        try:
            for item, following in zip(items, [*items[1:], None], strict=True):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                os.write(told, b"killed\n" if self._failed else b"passed\n")
                if self._failed:
                    break
        finally:
            session._setupstate.teardown_exact(None)


class _Progress:
    """What the fork says while it runs. One that ends without a word died of its mutant: that is noticed, too."""

    def __init__(self, heard: int) -> None:
        self._heard = heard
        self._text = b""
        self.verdict = SURVIVED
        self.last = ""

    def hears(self, test: str, within_s: float) -> bool:
        """Whether the test passed."""
        self.last = test
        until_s = time.monotonic() + within_s
        while b"\n" not in self._text:
            ready, _, _ = select.select([self._heard], [], [], max(0.0, until_s - time.monotonic()))
            if not ready:
                self.verdict = TIMED_OUT
                return False
            read = os.read(self._heard, 65536)
            if not read:
                self.verdict = KILLED
                return False
            self._text += read
        line, _, self._text = self._text.partition(b"\n")
        verdict, _, why = line.decode().partition(" ")
        if verdict == "passed":
            return True
        self.verdict, self.last = verdict, why or test
        return False

    def hears_the_end(self, within_s: float) -> None:
        until_s = time.monotonic() + within_s
        while select.select([self._heard], [], [], max(0.0, until_s - time.monotonic()))[0]:
            if not os.read(self._heard, 65536):
                return


def end_orphans() -> None:
    """Brokers of a fork that was killed."""
    for text in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        os.kill(int(text), signal.SIGKILL)
        os.waitpid(int(text), 0)


def exchange(path: Path, mutated: str) -> None:
    """Puts the code of the mutated source into every function that was made from the file."""
    old = list(_functions(compile(path.read_text(), str(path), "exec", dont_inherit=True)))
    new = list(_functions(compile(mutated, str(path), "exec", dont_inherit=True)))
    if [code.co_qualname for code in old] != [code.co_qualname for code in new]:
        raise LookupError(f"the functions of {path} are others")
    by_place = {(code.co_qualname, code.co_firstlineno): fresh for code, fresh in zip(old, new, strict=True)}
    gc.unfreeze()
    found = [one for one in gc.get_objects() if isinstance(one, types.FunctionType)]
    gc.freeze()
    exchanged = 0
    for function in found:
        if function.__code__.co_filename == str(path):
            function.__code__ = by_place[function.__code__.co_qualname, function.__code__.co_firstlineno]
            exchanged += 1
    if not exchanged:
        raise LookupError(f"no function of {path} is loaded")


def _functions(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _functions(constant)


def main() -> int:
    """Arguments: the job, where the verdicts go, and the seconds that it may take."""
    job, results, seconds = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), float(sys.argv[3])
    same_every_time()
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    files = sorted({test.split("::")[0] for row in job for test, _ in row["tests"]})
    shown = os.dup(1)
    with results.open("a", buffering=1) as noted:
        counts: Counter[str] = Counter()

        def tell(row: dict[str, Any]) -> None:
            print(json.dumps(row), file=noted)
            counts[row["verdict"]] += 1
            story = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
            os.write(shown, f"\r{counts.total()} of {len(job)} ({story})  ".encode())

        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        pytest.main([*PYTEST, *files], plugins=[Trials(job, time.monotonic() + seconds, tell)])
    os.write(shown, b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
