"""A driver as the chaos sees it: a process with its Java and workers, one query at a time, and a gate in its way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chaos_gate import Gate

from real_broker import clean_environment
from semel.spark.steps import VARIABLE

PATIENCE_S = 150.0
MASTER = "local[2,4]"
"""Two cores, and a task is tried four times: a worker that dies does not end the query."""
_LOOK_S = 0.02


class DriverDied(AssertionError):
    """The driver, or its query, has ended although nobody asked it to; or nothing came of what it was asked for."""


class ChaosDriver:
    """`spawn` returns at once: use it when `wait_until_ready` has."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.name = root.name
        self.gate = Gate(root / "gate")
        self.errors: list[str] = []
        """What its queries have ended with."""
        self._log = root / "log"
        self._errors = root / "errors"
        self._process: subprocess.Popen[str] | None = None
        self._run: str | None = None
        self._is_ready = threading.Event()
        self._is_started = threading.Event()
        self._is_ended = threading.Event()
        self._is_ended.set()

    def spawn(self) -> ChaosDriver:
        program = Path(__file__).with_name("chaos_program.py")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program), MASTER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=clean_environment(**{VARIABLE: self.gate.plan}),
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self._process,), name=self.name, daemon=True).start()
        return self

    def _listen(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            if not line.startswith('{"event"'):
                continue
            told = json.loads(line)
            if told["event"] == "ready":
                self._is_ready.set()
            elif told["event"] == "started":
                self._run = told["run"]
                self._is_started.set()
            elif told["run"] == self._run:
                if told["error"] is not None:
                    self.errors.append(told["error"])
                    with self._errors.open("a") as file:
                        file.write(told["error"] + "\n\n")
                self._is_ended.set()
        self._is_ended.set()  # whatever it was doing, it does no more

    # -- what it is asked for

    def wait_until_ready(self) -> None:
        self.wait_for(self._is_ready.is_set, "to be ready")

    def start(self, read: dict[str, str], write: dict[str, str], *, is_bounded: bool = False) -> None:
        """Begins a query; returns when Spark has taken it."""
        if self.is_running:
            raise DriverDied(f"{self.name} runs a query already")
        self.wait_until_ready()
        self._is_started.clear()
        self._is_ended.clear()
        self._ask(do="start", read=read, write=write, is_bounded=is_bounded)
        self.wait_for(self._is_started.is_set, "to start a query")

    @property
    def is_running(self) -> bool:
        return not self._is_ended.is_set()

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ask_to_stop(self) -> None:
        self._ask(do="stop")

    def wait_until_ended(self) -> None:
        self.wait_for(self._is_ended.is_set, "to end its query")

    def stop(self) -> None:
        if self.is_running:
            self.ask_to_stop()
            self.wait_until_ended()

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if not self.is_alive:
                raise DriverDied(self._with_log(f"{self.name} ended when it was {what}"))
            if time.monotonic() > deadline:
                raise DriverDied(self._with_log(f"{self.name} was {what} within {PATIENCE_S:g} s, and is not"))
            time.sleep(_LOOK_S)

    def _ask(self, **command: Any) -> None:
        if self._process is None or self._process.stdin is None:
            raise DriverDied(f"{self.name} was never started")
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _with_log(self, what: str) -> str:
        return f"{what}\n{self._log.read_text(errors='replace')[-6000:]}"

    # -- what happens to it

    def kill_workers(self) -> None:
        """All Python processes that do the work of Java; not those that only fork others."""
        for process, parent in list(self._descendants()):
            if _is_daemon(parent):
                _kill(process)

    def kill(self) -> None:
        """All at once, as if the machine had lost its power: Python, Java, and all workers."""
        if self._process is None:
            return
        doomed = [process for process, _ in self._descendants()]
        for process in (self._process.pid, *doomed):
            _kill(process)
        self._process.wait()
        self._process = None
        self.gate.close()

    def _descendants(self) -> Iterator[tuple[int, int]]:
        """Processes with their parents, parents first."""
        if self._process is None:
            return
        children: dict[int, list[int]] = {}
        for process, parent in _parents():
            children.setdefault(parent, []).append(process)
        waiting = [self._process.pid]
        while waiting:
            parent = waiting.pop(0)
            for process in children.get(parent, ()):
                yield process, parent
                waiting.append(process)


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                status = Path("/proc", entry, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(entry), int(status.rpartition(")")[2].split()[1])


def _is_daemon(process: int) -> bool:
    try:
        command = Path("/proc", str(process), "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"pyspark.daemon" in command
