"""A broker process of our own on this machine: started, killed, paused, and never left behind.

It keeps its directory and its port from one start to the next. What it prints goes to files beside its data.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

READY = re.compile(r"semel is ready at (\S+):(\d+)")
SERVE = (sys.executable, "-m", "semel.cli.main", "serve")
START_TIMEOUT_S = 30.0
LOOK_S = 0.01
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
"""A short run is not to be spent on waiting."""


class NodeDied(Exception):
    """The node ended although nobody asked it to."""


class LocalNode:
    """`command` starts a node; its options are added."""

    def __init__(self, name: str, root: Path, *, command: Sequence[str] = SERVE) -> None:
        self.name = name
        self.port = 0
        self._root = root
        self._command = list(command)
        self._starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._is_killed = False

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        if self._is_killed and self._process is not None:
            await self._process.wait()  # whoever killed it may have been called off before its end was known
        if self.is_running:
            return
        if self._process is not None and self._process.returncode != -signal.SIGKILL:
            raise NodeDied(f"{self.name} ended with code {self._process.returncode}:\n{self._last_words()}")
        self._is_killed = False
        self._starts += 1
        self._root.mkdir(parents=True, exist_ok=True)
        settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
        options = ["--data", str(self._root / "data"), "--port", str(self.port), *settings]
        with self._file("stdout").open("wb") as stdout, self._file("stderr").open("wb") as stderr:
            # Its own session: Ctrl-C ends the attack, which then ends its nodes.
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                *options,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=_environment(os.environ),
                start_new_session=True,
            )
        await self._until_ready(self._process)

    async def _until_ready(self, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while (ready := READY.search(self._file("stdout").read_text())) is None:
                    if process.returncode is not None:
                        raise NodeDied(f"{self.name} did not start:\n{self._last_words()}")
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise NodeDied(f"{self.name} was not ready after {START_TIMEOUT_S} s:\n{self._last_words()}") from None
        self.port = int(ready[2])

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._is_killed = True
            self._process.kill()
            await self._process.wait()

    def pause(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    def _file(self, stream: str) -> Path:
        return self._root / f"{stream}.{self._starts:03d}"

    def _last_words(self) -> str:
        return self._file("stderr").read_text(errors="replace")[-2000:]


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Without SEMEL_ variables: a broker takes them for settings, and refuses those that it does not know."""
    return {name: value for name, value in inherited.items() if not name.startswith("SEMEL_")}
