"""The steps of a commit by name, and a hook at which tests kill, pause or fail the process; no cost when it is unset.

`SEMEL_SPARK_STEP` holds one or more of `step[@batch]:action`, separated by commas. Actions: `kill` (this process, by
SIGKILL), `fail` (an error), `pause=FILE` (makes FILE and waits until somebody removes it), `note=FILE` (adds a line).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

VARIABLE = "SEMEL_SPARK_STEP"
_PAUSE_S = 0.01


class Step(StrEnum):
    STAGED = "staged"
    """In a task: everything is staged, and Spark does not know it yet."""
    CHECKED = "checked"
    """In `commit`, as all that follow: what was staged is there."""
    INITIALISED = "initialised"
    """InitProducerId was answered: who committed before is fenced, and its transaction has ended."""
    MARKER_READ = "marker-read"
    BEGUN = "begun"
    HALF_PUBLISHED = "half-published"
    """Some batches were handed over; again and again, as often as there are blocks of them."""
    PUBLISHED = "published"
    """Every batch is written."""
    MARKED = "marked"
    """The marker is written."""
    ENDED = "ended"
    """EndTxn was answered."""
    CLEANED = "cleaned"
    """What was staged is removed. What follows is Spark's own log of the commit."""


COMMIT_STEPS = tuple(step for step in Step if step is not Step.STAGED)

Hook: TypeAlias = Callable[[Step, int], Awaitable[None]]


class StepFailed(Exception):
    """What the action `fail` raises."""


class _Planned(NamedTuple):
    step: Step
    batch_id: int | None
    action: str
    argument: str


async def reached(step: Step, batch_id: int) -> None:
    """Called by the commit at each step."""
    act_on(step, batch_id)


def act_on(step: Step, batch_id: int) -> None:
    if _planned:
        for entry in _planned:
            if entry.step is step and entry.batch_id in (None, batch_id):
                _act(entry, batch_id)


def _act(entry: _Planned, batch_id: int) -> None:
    if entry.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif entry.action == "fail":
        raise StepFailed(f"failed at step {entry.step} of batch {batch_id}, as {VARIABLE} asks for")
    elif entry.action == "pause":
        with open(entry.argument, "w") as file:
            file.write(str(os.getpid()))
        parent = os.getppid()
        while os.path.exists(entry.argument):
            if os.getppid() != parent:  # whoever started us is dead, and so would we be
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(_PAUSE_S)
    else:
        with open(entry.argument, "a") as file:
            file.write(f"{entry.step} {batch_id} {os.getpid()}\n")


def parse(text: str) -> tuple[_Planned, ...]:
    """What a value of the variable asks for. Raises ValueError on one that asks for nothing that exists."""
    planned = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        place, _, deed = part.partition(":")
        name, _, batch = place.partition("@")
        action, _, argument = deed.partition("=")
        if action not in ("kill", "fail", "pause", "note") or (action in ("pause", "note")) != bool(argument):
            raise ValueError(f"{VARIABLE}: {part!r} has no action kill, fail, pause=FILE or note=FILE")
        planned.append(_Planned(Step(name), int(batch) if batch else None, action, argument))
    return tuple(planned)


_planned = parse(os.environ.get(VARIABLE, ""))
