"""The command line as real processes, with pipes or a terminal of their own. Whatever happens, none is left behind."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from real_broker import clean_environment, hear_ctrl_c

TIMEOUT_S = 30.0


class Processes:
    def __init__(self, address: str, contexts: Path) -> None:
        self.address = address
        self._environment = clean_environment(SEMEL_CONFIG=str(contexts), TERM="xterm")
        self._environment.pop("NO_COLOR", None)
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        *arguments: str,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] = subprocess.PIPE,
        stderr: int | IO[Any] = subprocess.PIPE,
        **environment: str,
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "semel.cli.main", *arguments, "--bootstrap", self.address],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**self._environment, **environment},
            bufsize=0,  # what is in no buffer can be waited for
            start_new_session=True,
            preexec_fn=hear_ctrl_c,
        )
        self._started.append(process)
        return process

    def on_terminal(self, *arguments: str, answer: bytes = b"", **environment: str) -> tuple[int, str]:
        """Runs it with a terminal for all its streams; exit code and what the terminal shows."""
        ours, theirs = pty.openpty()
        try:
            process = self.start(*arguments, stdin=theirs, stdout=theirs, stderr=theirs, **environment)
            os.close(theirs)
            theirs = -1
            if answer:
                os.write(ours, answer)
            return process.wait(TIMEOUT_S), _drained(ours)
        finally:
            os.close(ours)
            if theirs >= 0:
                os.close(theirs)

    def reap(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def _drained(terminal: int) -> str:
    """What is left in a terminal whose other side is closed."""
    shown = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the other side is closed, and everything was read
            break
        if not part:
            break
        shown += part
    return shown.decode().replace("\r\n", "\n")


def line_of(stream: IO[bytes] | None) -> bytes:
    """The next line of a process; fails when it takes too long."""
    assert stream is not None
    readable, _, _ = select.select([stream], [], [], TIMEOUT_S)
    assert readable, "it has printed nothing"
    return stream.readline()


def wait_until(is_so: Any) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not come to be"
        time.sleep(0.05)
