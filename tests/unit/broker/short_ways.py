"""Counts who goes a short way, for the tests of the lanes."""

from __future__ import annotations

from typing import Any

import pytest


class Counted:
    """How many requests went the short way, how many of them in one call, and how many tried."""

    def __init__(self) -> None:
        self.tried = 0
        self.served = 0
        self.quickly = 0
        self.is_open = True


def counted(monkeypatch: pytest.MonkeyPatch, lanes: type[Any]) -> Counted:
    """Of those that `lanes.serve` is asked for."""
    found = Counted()
    serve = lanes.serve

    def counting(self: Any, connection: Any, frame: memoryview) -> Any:
        if not found.is_open:
            return None
        answer = serve(self, connection, frame)
        found.tried += 1
        found.served += answer is not None
        return answer

    monkeypatch.setattr(lanes, "serve", counting)
    return found
