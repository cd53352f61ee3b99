"""A broker of a pipeline's own: `semel serve` in a process that ends with this one, whatever ends it."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from semel.spark.pipeline.errors import PipelineError

_READY = re.compile(r"semel is ready at (\S+:\d+)")
_LOCKED = ".lock is locked by"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.02
_SHOWN_CHARACTERS = 2000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class AlreadyRuns(PipelineError):
    """Somebody else has started the broker of this directory."""


class Broker:
    """Started by `start`, which returns its address."""

    def __init__(self, data: Path, port: int) -> None:
        self.data = data
        self._port = port
        self._log = data.with_name(f"{data.name}.log")
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        self.data.parent.mkdir(parents=True, exist_ok=True)
        # Settings of the node must not come from variables that are meant for the pipeline.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
        command = ["serve", "--data", str(self.data), "--port", str(self._port)]
        # Added to, not written anew: another run may be using the directory, and its log.
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "semel.cli.main", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # a Ctrl-C is for the pipeline, which stops the broker last
                preexec_fn=_end_with_parent,
            )
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while (ready := _READY.search(self._said())) is None:
            if self._process.poll() is not None:
                if _LOCKED in self._said():
                    raise AlreadyRuns(f"a broker runs in {self.data} already: is the pipeline running?")
                raise PipelineError(f"the embedded broker did not start: {self.last_words()}")
            if time.monotonic() > deadline_s:
                self.stop()
                raise PipelineError(
                    f"the embedded broker was not ready after {_START_TIMEOUT_S:.0f} s; see {self._log}"
                )
            time.sleep(_POLL_S)
        return ready[1]

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _said(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def last_words(self) -> str:
        lines = self._said()[-_SHOWN_CHARACTERS:].strip().splitlines()
        code = None if self._process is None else self._process.poll()
        return f"exit code {code}, {lines[-1] if lines else 'without a word'} (all of it is in {self._log})"

    def stop(self) -> None:
        """Returns when it has ended."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent() -> None:
    """Between fork and exec: the system sends the signal when the thread that started the broker is gone."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
