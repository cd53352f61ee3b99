"""The gate in the way of a driver's tasks and commits: every step stops there, and all but the held one go on at once.

The program under test only pauses (`semel.spark.steps`); what becomes of a process that was stopped, whether it is let
go, killed, or overtaken, is decided from outside.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from semel.spark.steps import Step

_LOOK_S = 0.005


class Gate:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._held: Step | None = None
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="gate", daemon=True)
        self._keeper.start()

    @property
    def plan(self) -> str:
        """What the variable of the steps has to hold."""
        return ",".join(f"{step}:pause={self._folder / step}" for step in Step)

    def hold(self, step: Step) -> None:
        """From now on whoever reaches this step stays there until `release`."""
        with self._lock:
            self._held = step

    def held(self) -> int | None:
        """The process that has reached the held step, if one has."""
        with self._lock:
            step = self._held
        if step is None:
            return None
        try:
            return int((self._folder / step).read_text() or 0) or None
        except FileNotFoundError:
            return None

    def kill_held(self) -> None:
        process = self.held()
        if process is not None:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def release(self) -> None:
        with self._lock:
            self._held = None

    def close(self) -> None:
        self._is_closed.set()
        self._keeper.join()

    def _keep(self) -> None:
        while not self._is_closed.is_set():
            with self._lock:
                for entry in os.listdir(self._folder):
                    if entry != self._held:
                        (self._folder / entry).unlink(missing_ok=True)
            time.sleep(_LOOK_S)
