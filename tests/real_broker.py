"""A real broker process for tests: started in a directory of its own, stopped, killed, and always reaped.

Its output is kept beside its data; a test that fails shows the end of it. Addresses are 127.0.0.1 and a port that the
first start picks and every later start of the same broker keeps, so that clients find it again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

READY = re.compile(r"semel is ready at (\S+):(\d+), data in (.+), after (\d+) ms")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment for a broker, without our own SEMEL_ variables: it refuses those that it does not know."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    return {**inherited, **variables}


def hear_ctrl_c() -> None:
    """For `preexec_fn`: tests that a shell runs in the background ignore SIGINT, and what they start would, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class BrokerDied(AssertionError):
    """The broker ended although nobody asked it to."""


class RealBroker:
    """One node. `start` may be called again after `stop` or `kill`: the same data, the same port."""

    def __init__(
        self,
        root: Path,
        *,
        flush: str = "fsync",
        settings: Mapping[str, str] | None = None,
        open_files: int | None = None,
        python: str = sys.executable,
    ) -> None:
        self.data = root / "data"
        self.open_files = open_files
        self.python = python
        self.port = 0
        self.flush = flush
        self.settings = dict(settings or {})
        self.starts = 0
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerDied("the broker is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def stdout(self) -> str:
        """What the latest start has printed."""
        path = self._path("stdout")
        return path.read_text() if path.exists() else ""

    def log(self) -> str:
        """What all starts so far have logged."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._root.glob("stderr.*")))

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        if found is None:
            raise BrokerDied(f"the broker has no memory any more: {status}")
        return int(found[1]) << 10

    def command(self) -> list[str]:
        settings = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        serve = ["serve", "--data", str(self.data), "--port", str(self.port), "--flush", self.flush]
        command = [self.python, "-m", "semel.cli.main", *serve, *settings]
        if self.open_files is not None:  # soft and hard, which nobody can raise again
            command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(self.open_files), *command]
        return command

    def start(self) -> RealBroker:
        """Returns when the broker has said that it is ready."""
        self.spawn()
        self.wait_until_ready()
        return self

    def spawn(self) -> None:
        """Starts the process and does not wait for it."""
        if self.is_running:
            raise BrokerDied("the broker is running already")
        self.starts += 1
        # Its own session: a Ctrl-C at the terminal ends the tests, which then end the broker.
        with self._path("stdout").open("wb") as stdout, self._path("stderr").open("wb") as stderr:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=clean_environment(),
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (ready := READY.search(self.stdout)) is None:
            if not self.is_running:
                raise BrokerDied(f"the broker ended instead of starting:\n{self.log()[-4000:]}")
            if time.monotonic() > deadline:
                raise BrokerDied(f"the broker was not ready after {START_TIMEOUT_S} s:\n{self.log()[-4000:]}")
            time.sleep(0.005)
        self.port = int(ready[2])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Asks it to stop; its exit code."""
        return self._end(number)

    def kill(self) -> int:
        return self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        if self._process is None:
            return 0
        process = self._process
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        self._process = None
        return code

    def reap(self) -> None:
        """Whatever happened, no process is left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _path(self, stream: str) -> Path:
        return self._root / f"{stream}.{self.starts:03d}"


class Brokers:
    """The brokers of one test."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.all: list[RealBroker] = []

    def new(
        self, *, flush: str = "fsync", settings: Mapping[str, str] | None = None, open_files: int | None = None
    ) -> RealBroker:
        """A broker that is not started yet."""
        root = self._root / f"broker-{len(self.all)}"
        root.mkdir(parents=True)
        broker = RealBroker(root, flush=flush, settings=settings, open_files=open_files)
        self.all.append(broker)
        return broker

    def start(
        self, *, flush: str = "fsync", settings: Mapping[str, str] | None = None, open_files: int | None = None
    ) -> RealBroker:
        return self.new(flush=flush, settings=settings, open_files=open_files).start()

    def reap(self) -> None:
        for broker in self.all:
            broker.reap()

    def logs(self) -> list[tuple[str, str]]:
        return [(f"log of the broker at {broker.address}", broker.log()[-8000:]) for broker in self.all]
