"""`semel pipeline` as a person runs it: a process of its own on a terminal, with Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

START_TIMEOUT_S = 150.0
COMMAND = [sys.executable, "-m", "semel.cli.main", "pipeline"]


def call(*arguments: str, cwd: Path | None = None, timeout_s: float = 240.0) -> subprocess.CompletedProcess[str]:
    """To its end, without a terminal."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL, cwd=cwd
    )


class OnTerminal:
    """Started with a terminal of its own; what it says is gathered."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self._master, slave = pty.openpty()
        self._text = ""
        self._process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, **variables},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                return
            if not part:
                return
            self._text += part.decode(errors="replace")

    @property
    def text(self) -> str:
        return self._text

    def wait_for(self, pattern: str, timeout_s: float = START_TIMEOUT_S) -> re.Match[str]:
        deadline_s = time.monotonic() + timeout_s
        while (found := re.search(pattern, self._text)) is None:
            if self._process.poll() is not None:
                self._reading.join(5)
                found = re.search(pattern, self._text)
                assert found is not None, f"it ended with {self._process.returncode}:\n{self._text}"
                return found
            assert time.monotonic() < deadline_s, f"{pattern!r} was not said in {timeout_s} s:\n{self._text}"
            time.sleep(0.05)
        return found

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def kill(self) -> None:
        self._process.kill()

    def end(self, timeout_s: float = 60.0) -> int:
        """Its exit code."""
        code = self._process.wait(timeout_s)
        self._reading.join(5)
        return code

    def reap(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)


def processes_with(text: str) -> list[int]:
    """Those whose command line holds the text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def eventually(holds: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not after {timeout_s} s: {what}"
        time.sleep(0.1)
