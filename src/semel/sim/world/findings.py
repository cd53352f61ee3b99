"""What a run has found wrong, and what it has been through: the first is told, the second is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_KEPT = 50


class Violation(NamedTuple):
    """`kind` is a short name: what is left of a schedule has to find one of the same kind."""

    kind: str
    text: str


class Event(NamedTuple):
    """Something that happened to the world, for people."""

    at_s: float
    who: str
    text: str


@dataclass
class Findings:
    clock_s: Callable[[], float]
    violations: list[Violation] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=Counter)
    """How often each kind of fault and each move of a state machine was seen."""

    def wrong(self, kind: str, text: str) -> None:
        if len(self.violations) < MAX_KEPT:
            self.violations.append(Violation(kind, text))
        self.note("check", f"{kind}: {text}")

    def note(self, who: str, text: str) -> None:
        self.events.append(Event(self.clock_s(), who, text))

    def saw(self, what: str) -> None:
        self.coverage[what] += 1
