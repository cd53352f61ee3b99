"""A PostgreSQL server for tests, from the system's packages, in a directory of its own; tests reach it by psycopg."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

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
    def url(self) -> str:
        return f"postgresql://tester@/postgres?host={self.root}"

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url) as connection:
            return connection.execute(statement).fetchall()

    def start(self) -> Postgres:
        import psycopg

        command = [self._programs / "postgres", "-D", self.root / "data", "-k", self.root, "-c", "listen_addresses="]
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.root, **as_postgres())
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.ask("select 1")
                return self
            except psycopg.OperationalError:
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


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Skips the test, with a reason, where there is none."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    if find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed: pip install 'psycopg[binary]'")
    server = Postgres(programs)
    try:
        yield server.start()
    finally:
        server.reap()
