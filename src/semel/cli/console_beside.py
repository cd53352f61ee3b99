"""`semel serve --console`: the console as a process beside the node, which ends with it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.util import find_spec

_STOP_WITHIN_S = 5.0
NOT_INSTALLED = "--console needs starlette and uvicorn, which are not installed: pip install 'semel[console]'"


def is_installed() -> bool:
    return find_spec("starlette") is not None and find_spec("uvicorn") is not None


class ConsoleBeside:
    """It watches the pipe to its standard input: also when this process is killed, it ends."""

    def __init__(self, address: str, port: int, *, is_json: bool) -> None:
        command = [sys.executable, "-m", "semel.cli.main", "console", "--bootstrap", address, "--port", str(port)]
        self._process = subprocess.Popen(
            [*command, "--stop-at-eof", *(["--json"] if is_json else [])], stdin=subprocess.PIPE
        )

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.to_thread(self._process.wait, _STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
