"""A run as lines that people read: who did what and when, what was acknowledged, what was struck, what was found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from semel.sim.history import NO_OFFSET, NO_TRANSACTION, End, Finish, Init, Move, Note, Operation, Outcome, Poll, Send
from semel.sim.world.simulation import Run

SHOWN_RECORDS = 6


class Line(NamedTuple):
    at_s: float
    order: int
    who: str
    text: str
    is_about_the_world: bool

    def __str__(self) -> str:
        return f"{self.at_s:10.3f} s  {self.who:18}  {self.text}"


def timeline(run: Run) -> list[Line]:
    """In the order of time; sends and acknowledgements of one client that follow each other share a line."""
    lines = [Line(event.at_s, -1, event.who, event.text, True) for event in run.events]
    moments = sorted(_moments(run.history.operations), key=lambda moment: moment.order)
    for (who, what), group in groupby(moments, key=lambda moment: (moment.who, moment.what)):
        together = list(group)
        lines.append(Line(together[0].at_s, together[0].order, who, _joined(what, together), False))
    return sorted(lines, key=lambda line: (round(line.at_s, 3), not line.is_about_the_world, line.order))


class _Moment(NamedTuple):
    """The beginning or end of an operation."""

    at_s: float
    order: int
    who: str
    what: str
    detail: str


def _joined(what: str, moments: list[_Moment]) -> str:
    details = [moment.detail for moment in moments]
    shown = ", ".join(details[:SHOWN_RECORDS])
    more = f" and {len(details) - SHOWN_RECORDS} more" if len(details) > SHOWN_RECORDS else ""
    return f"{what} {shown}{more}".rstrip()


def _moments(operations: list[Operation]) -> Iterator[_Moment]:
    for operation in operations:
        began = _began(operation)
        if began is not None:
            yield _Moment(operation.began_ms / 1000, operation.began, operation.process, *began)
        ended = _ended(operation) if operation.ended >= 0 else None
        if ended is not None:
            yield _Moment(operation.ended_ms / 1000, operation.ended, operation.process, *ended)


def _began(operation: Operation) -> tuple[str, str] | None:
    if isinstance(operation, Send):
        source = "" if operation.source < 0 else f" (from {operation.source})"
        inside = "" if operation.transaction == NO_TRANSACTION else f" in transaction {operation.transaction}"
        return f"sends{inside}", f"{operation.value}{source} to {operation.place}"
    if isinstance(operation, Init):
        return "takes over its transactional id", ""
    if isinstance(operation, End):
        return f"asks to {'commit' if operation.is_commit else 'abort'} transaction", str(operation.transaction)
    return None


def _ended(operation: Operation) -> tuple[str, str] | None:
    error = f": {operation.error}" if operation.error else ""
    if isinstance(operation, Send):
        if operation.is_ok:
            offset = "" if operation.offset == NO_OFFSET else f" at {operation.offset}"
            return "has acknowledged", f"{operation.value}{offset}"
        what = "certainly not written" if operation.outcome is Outcome.FAIL else "in doubt"
        return f"{what}{error}:", str(operation.value)
    if isinstance(operation, Poll):
        read = [
            f"{place} {numbers[0]}..{numbers[-2]} ({len(numbers) // 2})" for place, numbers in operation.read.items()
        ]
        return ("reads", ", ".join(read)) if read else None
    if isinstance(operation, Init):
        return ("is the owner" if operation.is_ok else f"is not the owner{error}"), ""
    if isinstance(operation, End):
        verb = "committed" if operation.is_commit else "aborted"
        return (f"{verb if operation.is_ok else f'not {verb}{error}'}: transaction", str(operation.transaction))
    if isinstance(operation, Move):
        return "goes on with", ", ".join(
            place if offset == NO_OFFSET else f"{place} from {offset}" for place, offset in operation.places.items()
        )
    if isinstance(operation, Finish):
        return ("is at the end of" if operation.is_ok else f"does not get to the end{error}:"), operation.place
    return ("phase:", operation.text) if isinstance(operation, Note) else None
