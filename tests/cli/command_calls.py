"""Calls of the command line in this process: what goes in, what comes out, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from semel.cli.main import main


class Called(NamedTuple):
    code: int
    out: str
    err: str
    raw: bytes

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        """One of each line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Semel:
    def __init__(
        self,
        address: str,
        stdin: Path,
        monkeypatch: pytest.MonkeyPatch,
        captured: pytest.CaptureFixture[bytes],
    ) -> None:
        self.address = address
        self._stdin = stdin
        self._monkeypatch = monkeypatch
        self._captured = captured

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Called:
        """Calls it for the broker of the test, and expects the exit code."""
        self._stdin.write_bytes(stdin)
        self._captured.readouterr()
        with self._stdin.open() as file, self._monkeypatch.context() as patch:
            patch.setattr("sys.stdin", file)
            try:
                ended = main([*arguments, "--bootstrap", self.address])
            except SystemExit as exit_:
                ended = int(exit_.code or 0)
        raw, err = self._captured.readouterr()
        called = Called(ended, raw.decode(errors="replace"), err.decode(), raw)
        assert called.code == code, called
        return called
