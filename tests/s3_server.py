"""A real S3 server for tests: versitygw, a gateway to a directory of this machine.

It is found on the PATH. With SEMEL_TEST_S3 in the environment (`make stores`) Go builds it, once, from the public
module proxy, which takes minutes, and it is kept in a directory for temporary files.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUCKET = "pipelines"
ACCESS, SECRET = "reader-and-writer", "a-secret-of-tests"
_BUILD_S, _START_S = 600, 20


@cache
def program() -> str | None:
    """Where the server is; None if it is not there and is not to be built, or cannot be."""
    found = shutil.which("versitygw")
    if found is not None:
        return found
    folder = Path(tempfile.gettempdir(), f"semel-tests-{os.getuid()}", MODULE.rpartition("@")[2])
    built = folder / "versitygw"
    if not built.exists():
        if "SEMEL_TEST_S3" not in os.environ or shutil.which("go") is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as own:  # several may build at the same time
            try:
                subprocess.run(
                    ["go", "install", MODULE],
                    env={**os.environ, "GOBIN": own, "GOFLAGS": "-modcacherw"},
                    check=True,
                    capture_output=True,
                    timeout=_BUILD_S,
                )
            except (subprocess.SubprocessError, OSError):
                return None
            os.replace(Path(own, "versitygw"), built)
    return str(built)


class S3Server:
    """One bucket, one user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "data" / BUCKET).mkdir(parents=True)
        (folder / "meta").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                program() or "versitygw",
                *("--port", f"127.0.0.1:{self.port}"),
                *("--access", ACCESS, "--secret", SECRET),
                *("posix", "--sidecar", str(folder / "meta"), str(folder / "data")),
            ],
            stdout=self._log,
            stderr=self._log,
        )
        self._await()

    def _await(self) -> None:
        deadline_s = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline_s or self._process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.05)

    @property
    def conf(self) -> dict[str, str]:
        """What a session is told of it."""
        prefix = "spark.hadoop.fs.s3a"
        return {
            f"{prefix}.endpoint": f"http://127.0.0.1:{self.port}",
            f"{prefix}.access.key": ACCESS,
            f"{prefix}.secret.key": SECRET,
            f"{prefix}.path.style.access": "true",
        }

    def files(self, below: str = "") -> list[str]:
        """The objects of the bucket."""
        root = self.folder / "data" / BUCKET
        found = (path.relative_to(root) for path in (root / below).rglob("*") if path.is_file())
        return sorted(str(path) for path in found if not str(path).startswith(".sgwtmp"))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._log.close()
