"""A PostgreSQL server for tests, from the system's packages, in a directory of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from libpq_connection import LibpqConnection

START_TIMEOUT_S = 30.0


def postgres_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    path = found[-1] if found else shutil.which("postgres")
    return None if path is None else Path(path).resolve().parent


def as_postgres() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


class Postgres:
    """It listens on a socket in its directory only. `kill` is what a power cut would leave of its processes."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # A place that another user may go to, which pytest's directories are not.
        self.root = Path(tempfile.mkdtemp(prefix="semel-postgres-"))
        if os.geteuid() == 0:
            shutil.chown(self.root, "postgres", "postgres")
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run(
            [programs / "initdb", "-D", self.root / "data", "--auth", "trust", "--no-sync", "-U", "tester"],
            check=True,
            capture_output=True,
            cwd=self.root,
            **as_postgres(),
        )

    @property
    def conninfo(self) -> str:
        return f"host={self.root} dbname=postgres user=tester"

    def start(self) -> Postgres:
        log = (self.root / "log").open("ab")
        command = [self._programs / "postgres", "-D", self.root / "data", "-k", self.root, "-c", "listen_addresses="]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.root, **as_postgres())
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                LibpqConnection(self.conninfo, with_copy=False).close()
                return self
            except Exception:
                assert time.monotonic() < deadline, (self.root / "log").read_text()
                time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def reap(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.root, ignore_errors=True)
