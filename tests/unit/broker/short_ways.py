"""Counts who goes a short way, for the tests of the lanes."""

from __future__ import annotations

from typing import Any

import pytest

from semel.broker.produce_lanes import ProduceLanes
from semel.replication.partition import Partition


class Counted:
    """How many requests went the short way, and how many tried."""

    def __init__(self) -> None:
        self.tried = 0
        self.served = 0
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


def counted_produces(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Of produce requests that a lane is asked for. If it is closed, there are no lanes, and no batch is ordinary."""
    found = Counted()
    learn, rules_for = ProduceLanes.learn, Partition.rules_for

    def counting(take: Any) -> Any:
        def taking(connection: Any, buffer: memoryview, start: int, count: int) -> Any:
            found.tried += 1
            taken = take(connection, buffer, start, count)
            found.served += taken is not None
            if connection.lane is not None and connection.lane is not taking:  # another lane's
                connection.lane = counting(connection.lane)
            return taken

        return taking

    def learning(self: ProduceLanes, connection: Any, *rest: Any) -> None:
        before = connection.lane
        learn(self, connection, *rest)
        if connection.lane is not before:
            connection.lane = counting(connection.lane)

    monkeypatch.setattr(ProduceLanes, "learn", learning)
    monkeypatch.setattr(Partition, "rules_for", lambda self, acks: rules_for(self, acks) if found.is_open else None)
    return found
