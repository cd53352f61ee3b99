"""A run of the application in a process of its own, with a place in its commits where it is to halt."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HALT_VARIABLE = "SEMEL_SPARK_STEP"
PATIENCE_S = 180.0


class Driver:
    """`halts`: a step of a batch, as `marked@3`, and the file that is there as long as it halts."""

    def __init__(self, name: str, address: str, directory: Path, halts: dict[str, Path]) -> None:
        self.name = name
        self._log = directory / f"{name}.log"
        halting = ",".join(f"{place}:pause={file}" for place, file in halts.items())
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "application.py"), address, str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, HALT_VARIABLE: halting},
                start_new_session=True,
            )

    def wait_for(self, *files: Path) -> None:
        self._wait(lambda: all(file.exists() for file in files), f"{', '.join(file.name for file in files)}")

    def wait_for_word(self, word: str) -> str:
        """The line of its log that has the word."""
        self._wait(lambda: word in self._log.read_text(errors="replace"), f"{word!r} in its log")
        return next(line for line in self._log.read_text(errors="replace").splitlines() if word in line)

    def send(self, number: signal.Signals) -> None:
        """To Python and Java; the workers follow Java."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def end(self, how: signal.Signals) -> None:
        if self._process.poll() is None:
            if how is signal.SIGTERM:
                self._process.terminate()
            else:
                self.send(how)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                pass
        self.send(signal.SIGKILL)
        self._process.wait()

    def _wait(self, is_there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_there():
            if self._process.poll() is not None or time.monotonic() > deadline:
                ending = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
                raise SystemExit(f"driver {self.name} did not get to {what}:\n{ending}")
            time.sleep(0.05)
