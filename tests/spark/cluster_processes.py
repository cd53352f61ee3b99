"""Processes that start processes, as Spark's do: all that came of one test are found, whoever their parent is.

They carry a mark in their environment, which children inherit. So nothing is left over, and nobody else's is touched.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

MARK = "CLUSTER_TEST_MARK"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
REAP_TIMEOUT_S = 30.0


class StartedProcess:
    """One program, the leader of a session of its own, whose output goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Until something is so; fails if the program ends before, or does not get there in time."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert self.is_running, f"ended before {what}:\n{self.log()[-6000:]}"
            assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s:\n{self.log()[-6000:]}"
            time.sleep(0.02)

    def wait_until_over(self, timeout_s: float, meanwhile: Callable[[], object] = lambda: None) -> int:
        """Until it has ended by itself: its exit code. `meanwhile` is called again and again."""
        deadline = time.monotonic() + timeout_s
        while self.is_running:
            meanwhile()
            assert time.monotonic() < deadline, f"it has not ended within {timeout_s} s:\n{self.log()[-6000:]}"
            time.sleep(0.02)
        return self._process.returncode

    def finish(self, timeout_s: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Until it has ended well."""
        assert self.wait_until_over(timeout_s, meanwhile) == 0, self.log()[-6000:]

    def kill(self) -> None:
        """With all that is in its session and has not left its group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


class ProcessFamily:
    """Use with `with`: at its end no process of it is left."""

    def __init__(self) -> None:
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        self._started: list[StartedProcess] = []

    def __enter__(self) -> ProcessFamily:
        return self

    def __exit__(self, *_: object) -> None:
        self.reap()

    def start(
        self, command: Sequence[str | Path], log: Path, *, cwd: Path | None = None, environ: Mapping[str, str]
    ) -> StartedProcess:
        name, _, value = self._mark.partition("=")
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                env={**environ, name: value},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        started = StartedProcess(process, log)
        self._started.append(started)
        return started

    def pids(self) -> list[int]:
        """All that are alive, children of children too."""
        return [pid for pid in _all_pids() if self._mark.encode() in _read(pid, "environ").split(b"\0")]

    def executors(self) -> list[int]:
        return [pid for pid in self.pids() if is_executor(pid)]

    def kill_descendants(self, ancestor_pid: int) -> None:
        """A program and everything that it has started and that is still below it, in whatever group."""
        for pid in [pid for pid in self.pids() if ancestor_pid in (pid, *ancestors(pid))]:
            _kill(pid)

    def reap(self) -> None:
        deadline = time.monotonic() + REAP_TIMEOUT_S
        while left := self.pids():
            for pid in left:
                _kill(pid)
            for started in self._started:
                started.kill()
            assert time.monotonic() < deadline, f"processes that cannot be killed: {left}"
            time.sleep(0.05)


def is_executor(pid: int) -> bool:
    return EXECUTOR.encode() in _read(pid, "cmdline").split(b"\0")


def executor_above(pid: int) -> int:
    """The executor that a worker of Python belongs to."""
    return next(one for one in (pid, *ancestors(pid)) if is_executor(one))


def ancestors(pid: int) -> Iterator[int]:
    while (stat := _read(pid, "stat")) and pid > 1:
        # The name stands in brackets, and may hold anything.
        pid = int(stat.rpartition(b")")[2].split()[1])
        yield pid


def kill_now(pid: int) -> None:
    """Returns when it has gone."""
    _kill(pid)
    deadline = time.monotonic() + REAP_TIMEOUT_S
    while _read(pid, "cmdline"):
        assert time.monotonic() < deadline, f"process {pid} survives SIGKILL"
        time.sleep(0.01)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _read(pid: int, file: str) -> bytes:
    """Of a process that may have gone; a dead one that nobody has waited for has no command line."""
    try:
        return Path("/proc", str(pid), file).read_bytes()
    except OSError:
        return b""
