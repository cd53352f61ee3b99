"""A node as a process of this machine: started, stopped, killed, paused, and never left behind.

The node's standard input is a pipe, and it stops when that ends: so it does not outlive whoever started it, not even
one who was killed. It has a process group of its own: a Ctrl-C at the terminal is for whoever started it, who then ends
it. If that one dies while the node is paused, the system lets it go on, for its group is then nobody's.

Nothing here waits by itself but `stop`, `wait` and `kill`; `until_ready` is for programs with an event loop,
`wait_until_ready` for all others.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

SERVE = (sys.executable, "-m", "semel.cli.main", "serve")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_READY = b"semel is ready"
_LOOK_S = 0.005
_LAST_BYTES = 2000
_KEPT_VARIABLES = ("SEMEL_LOG_LEVEL",)


class NodeDied(Exception):
    """The node ended although nobody asked it to, or is not running."""


class NodeProcess:
    """`command` starts the node, with all its options; `log` is the file that gets what it prints."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.command = [*command, "--stop-at-eof"]
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._is_paused = False
        self._may_have_ended = True

    # -- what it is

    @property
    def pid(self) -> int:
        if self._process is None:
            raise NodeDied(f"{self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        return self._is_paused and self.is_running

    @property
    def ended_with(self) -> int | None:
        """Its exit code if it has ended although nobody asked it to: minus a signal's number, if that was the cause."""
        return None if self._process is None or self._may_have_ended else self._process.poll()

    def last_words(self) -> str:
        """The end of what its latest start has printed."""
        return self._printed()[-_LAST_BYTES:].decode(errors="replace").strip()

    def _printed(self) -> bytes:
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_start)
                return file.read()
        except FileNotFoundError:
            return b""

    # -- its life

    def spawn(self) -> None:
        """Starts the process; it is not ready yet."""
        if self.is_running:
            raise NodeDied(f"{self.name} is running already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(os.environ),
                process_group=0,
            )
        self._is_paused = self._may_have_ended = False

    def is_ready(self) -> bool:
        """Whether it has said that it serves. Raises NodeDied, with its last words, if it has ended instead."""
        has_ended = not self.is_running  # looked at first: what it has said before its end is there then
        if _READY in self._printed():
            return True
        if has_ended:
            code = None if self._process is None else self._process.returncode
            raise NodeDied(f"{self.name} did not start (exit code {code}); the end of {self.log}:\n{self.last_words()}")
        return False

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Has it stop cleanly, and waits for that; its exit code. One that takes longer is killed: NodeDied."""
        if self._process is None:
            return 0
        self.ask_to_stop()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeDied(
                f"{self.name} had not stopped after {timeout_s:.0f} s and was killed; the end of {self.log}:\n"
                f"{self.last_words()}"
            ) from None
        self._forget()
        return code

    def ask_to_stop(self) -> None:
        """Does not wait for it."""
        self._may_have_ended = True
        self.resume()
        self._signal(signal.SIGTERM)

    def hurry(self) -> None:
        """One that is asked to stop does not hand over to others first."""
        self._close_input()

    def wait(self) -> None:
        """Blocks until it has ended by itself."""
        if self._process is not None:
            self._process.wait()

    def kill(self) -> None:
        """At once, without a word; it is gone when this returns."""
        self._may_have_ended = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _forget(self) -> None:
        self._close_input()
        self._process = None

    def pause(self) -> None:
        """It stands still, with its connections open, until `resume`."""
        self._is_paused = True
        self._signal(signal.SIGSTOP)
        if self.is_running:
            # Only one that stands still already is told to go on when its starter dies.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


def wait_until_ready(nodes: Sequence[NodeProcess], timeout_s: float = START_TIMEOUT_S) -> None:
    """Blocks until all of them are ready. Raises NodeDied."""
    deadline_s = time.monotonic() + timeout_s
    while waiting := [node for node in nodes if not node.is_ready()]:
        if time.monotonic() > deadline_s:
            raise _late(waiting[0], timeout_s)
        time.sleep(_LOOK_S)


async def until_ready(nodes: Sequence[NodeProcess], timeout_s: float = START_TIMEOUT_S) -> None:
    """The same in an event loop, which goes on meanwhile."""
    deadline_s = time.monotonic() + timeout_s
    while waiting := [node for node in nodes if not node.is_ready()]:
        if time.monotonic() > deadline_s:
            raise _late(waiting[0], timeout_s)
        await asyncio.sleep(_LOOK_S)


def _late(node: NodeProcess, timeout_s: float) -> NodeDied:
    return NodeDied(
        f"{node.name} was not ready after {timeout_s:.0f} s; the end of {node.log}:\n{node.last_words() or '(nothing)'}"
    )


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Without SEMEL_ variables: a node takes them for settings, and refuses those that it does not know."""
    return {
        name: value for name, value in inherited.items() if name in _KEPT_VARIABLES or not name.startswith("SEMEL_")
    }
