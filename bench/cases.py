"""What a group of a bench is made of: cases, each with its rows, and how far the run is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Case(NamedTuple, Generic[T]):
    """`steps` is how often `run` tells of a measurement; `name` is what `--rows` chooses by."""

    name: str
    steps: int
    run: Callable[[Progress], list[T]]


class Progress:
    """Says on stderr what was found, after how much of the whole and how much time."""

    def __init__(self, steps: int = 0) -> None:
        self._steps = steps
        self._done = 0
        self._begin_s = time.monotonic()

    def expect(self, steps: int) -> None:
        """There are so many more steps than it was told of."""
        self._steps += steps

    def __call__(self, text: str) -> None:
        self._done += 1
        self.say(text)

    def say(self, text: str) -> None:
        """No step of its own."""
        minutes, seconds = divmod(int(time.monotonic() - self._begin_s), 60)
        place = f"{self._done} of {self._steps}, " if self._steps else ""
        print(f"[{place}{minutes}:{seconds:02d}] {text}", file=sys.stderr, flush=True)


def chosen(cases: Sequence[Case[T]], words: str) -> list[Case[T]]:
    """Those whose name has the words in it."""
    return [case for case in cases if words.lower() in case.name.lower()]


def run_cases(cases: Sequence[Case[T]]) -> list[T]:
    progress = Progress(sum(case.steps for case in cases))
    return [row for case in cases for row in case.run(progress)]
