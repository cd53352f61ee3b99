"""What clients did and saw: the operations of one run, in the order in which they began.

An operation begins, and ends ok (it happened), fail (it certainly did not) or info (nobody knows). Beginnings and ends
are numbered from one counter, so "before" is exact even where the clock has the same millisecond for both. Values are
numbers that are sent once in a run. One line of JSON per operation; the same run gives the same bytes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

NO_OFFSET = -1
NO_TRANSACTION = -1
NO_VALUE = -1
UNENDED = -1
FORGOTTEN_WITHIN = 500


class Outcome(Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(slots=True)
class Client:
    """Who did it, and what was promised to it. A producer that was replaced is another client with the same id."""

    name: str
    role: str
    reads_committed: bool = False
    is_idempotent: bool = True
    waits_for_all: bool = True
    transactional_id: str | None = None
    group: str | None = None


@dataclass(slots=True, kw_only=True)
class Operation:
    process: str
    began: int = 0
    began_ms: int = 0
    ended: int = UNENDED
    ended_ms: int = UNENDED
    outcome: Outcome = Outcome.INFO
    error: str = ""

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.OK


@dataclass(slots=True, kw_only=True)
class Send(Operation):
    """One record. `source` is the value that was read for it, in consume-transform-produce."""

    place: str
    value: int
    transaction: int = NO_TRANSACTION
    source: int = NO_VALUE
    offset: int = NO_OFFSET


@dataclass(slots=True, kw_only=True)
class Poll(Operation):
    """What one poll gave: for each place offset, value, offset, value, and so on."""

    reads_committed: bool
    read: dict[str, array[int]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Move(Operation):
    """Places from which a reader goes on elsewhere: at an offset, or at one that it does not know (-1)."""

    places: dict[str, int]


@dataclass(slots=True, kw_only=True)
class Init(Operation):
    """A producer takes over its transactional id."""


@dataclass(slots=True, kw_only=True)
class End(Operation):
    """A producer asks for the end of its transaction."""

    transaction: int
    is_commit: bool


@dataclass(slots=True, kw_only=True)
class Finish(Operation):
    """After everything has healed: a reader, or a group under its name, is to read a place to its end."""

    place: str
    reads_committed: bool
    offset: int = NO_OFFSET
    """Where it stands."""


@dataclass(slots=True, kw_only=True)
class Note(Operation):
    """A fault, or a phase of the run: for people."""

    text: str


KINDS: dict[str, type[Operation]] = {
    kind.__name__.lower(): kind for kind in (Send, Poll, Move, Init, End, Finish, Note)
}
_NAMES = {kind: name for name, kind in KINDS.items()}

O = TypeVar("O", bound=Operation)  # noqa: E741


def pairs(flat: array[int]) -> Iterator[tuple[int, int]]:
    """Offsets with their values."""
    numbers = iter(flat)
    return zip(numbers, numbers, strict=True)


def flat(records: Iterable[tuple[int, int]]) -> array[int]:
    return array("q", [number for record in records for number in record])


class History:
    """`clock_ms` gives the times of the operations: that of the host on which the clients run."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self.clients: dict[str, Client] = {}
        self.operations: list[Operation] = []
        self._clock_ms = clock_ms
        self._events = 0
        self._transactions = 0
        self._values = 0

    def add_client(self, client: Client) -> Client:
        self.clients[client.name] = client
        return client

    def next_value(self) -> int:
        self._values += 1
        return self._values

    def next_transaction(self) -> int:
        self._transactions += 1
        return self._transactions

    # -- recording

    def begin(self, operation: O) -> O:
        operation.began = self._next_event()
        operation.began_ms = self._clock_ms()
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome, error: str = "") -> None:
        operation.ended = self._next_event()
        operation.ended_ms = self._clock_ms()
        operation.outcome = outcome
        operation.error = error

    def ok(self, operation: Operation) -> None:
        self.end(operation, Outcome.OK)

    def sent(self, send: Send, offset: int) -> None:
        send.offset = offset
        self.end(send, Outcome.OK)

    def polled(self, poll: Poll, read: Mapping[str, Iterable[tuple[int, int]]]) -> None:
        """A poll that found nothing says nothing: it is not kept, unless much has happened since it began."""
        if not read and self._forget(poll):
            return
        poll.read = {place: flat(records) for place, records in read.items()}
        self.end(poll, Outcome.OK)

    def _forget(self, operation: Operation) -> bool:
        newest = len(self.operations) - 1
        for index in range(newest, max(newest - FORGOTTEN_WITHIN, -1), -1):
            if self.operations[index] is operation:
                del self.operations[index]
                return True
        return False

    def move(self, process: str, places: Mapping[str, int]) -> None:
        self.ok(self.begin(Move(process=process, places=dict(places))))

    def note(self, process: str, text: str) -> None:
        self.ok(self.begin(Note(process=process, text=text)))

    def _next_event(self) -> int:
        self._events += 1
        return self._events

    # -- lines

    def lines(self) -> Iterator[str]:
        """Clients first, then operations; without line ends."""
        for client in self.clients.values():
            yield _line({"kind": "client", **{entry.name: getattr(client, entry.name) for entry in fields(client)}})
        for operation in self.operations:
            yield _line({"kind": _NAMES[type(operation)], **_plain(operation)})

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> History:
        history = cls()
        for line in lines:
            found: dict[str, Any] = json.loads(line)
            kind = found.pop("kind")
            if kind == "client":
                history.add_client(Client(**found))
                continue
            found["outcome"] = Outcome(found["outcome"])
            if kind == "poll":
                found["read"] = {place: array("q", numbers) for place, numbers in found["read"].items()}
            history.operations.append(KINDS[kind](**found))
        return history


def _plain(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in fields(operation):
        value = getattr(operation, entry.name)
        if entry.name == "outcome":
            value = value.value
        elif entry.name == "read":
            value = {place: list(numbers) for place, numbers in value.items()}
        found[entry.name] = value
    return found


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))
