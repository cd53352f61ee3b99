"""A node in a process of its own, so that the plug can be pulled."""

import re
import signal
import subprocess
import sys


class Broker:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> int:
        """Returns when it serves: after how many milliseconds, by its own word."""
        command = [
            sys.executable,
            "-m",
            "semel.cli.main",
            "serve",
            "--data",
            self._directory,
            "--port",
            str(self._port),
        ]
        self._process = subprocess.Popen([*command, "--log-level", "ERROR"], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = re.search(r":(\d+),.* after (\d+) ms", self._process.stdout.readline())
        if ready is None:
            sys.exit("the broker did not start: its message is above")
        self._port = int(ready[1])
        return int(ready[2])

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None
