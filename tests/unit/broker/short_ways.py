"""Counts who goes a short way, for the tests of the lanes."""

from __future__ import annotations

from typing import Any

import pytest

from semel.broker import produce_lanes
from semel.broker.produce_lanes import ProduceLanes
from semel.log.produce_kernel import Gathered, QuickLane
from semel.replication.partition import Partition
from semel.rpc.served import ServedConnection


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


def counted_produces(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Of produce requests, also those that a quick lane is asked for. If it is closed, no batch is an ordinary one."""
    found = counted(monkeypatch, ProduceLanes)
    last: list[Gathered | None] = [None]

    class CountedLane:
        def __init__(self, *what: Any) -> None:
            self._lane = QuickLane(*what)

        def gather(self, connection: ServedConnection, buffer: memoryview, start: int, count: int) -> Gathered | None:
            answer = self._lane.gather(connection, buffer, start, count) if found.is_open else None
            is_another = answer is not None and answer is not last[0]  # else one lane has it from another
            found.served += is_another
            found.quickly += is_another
            last[0] = answer
            return answer

    ordinary_for = Partition.ordinary_for
    monkeypatch.setattr(produce_lanes, "QuickLane", CountedLane)
    monkeypatch.setattr(
        Partition, "ordinary_for", lambda self, acks: ordinary_for(self, acks) if found.is_open else None
    )
    return found
