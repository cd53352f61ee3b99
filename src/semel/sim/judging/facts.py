"""What a history says, put in order once for all judges: who sent what, which transactions were committed, who saw
what, and which offsets hold which values."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from semel.sim.history import NO_OFFSET, NO_TRANSACTION, Client, End, Finish, History, Init, Move, Outcome, Poll, Send

NEVER = 1 << 62
ANYWHERE = -2
"""The position of a reader of which nobody knows where it goes on."""


class Fate(Enum):
    """COMMITTED: its producer was told so. ABORTED: nobody ever asked to commit it, or that was refused for good."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transaction:
    """`asked` is when the commit was first asked for."""

    __slots__ = ("asked", "ends", "number", "process", "sends")

    def __init__(self, number: int, process: str) -> None:
        self.number = number
        self.process = process
        self.sends: list[Send] = []
        self.ends: list[End] = []
        self.asked = NEVER

    @property
    def fate(self) -> Fate:
        commits = [end for end in self.ends if end.is_commit]
        if any(end.is_ok for end in commits):
            return Fate.COMMITTED
        if all(end.outcome is Outcome.FAIL for end in commits):
            return Fate.ABORTED
        return Fate.UNKNOWN


class Gap(NamedTuple):
    """A reader got the record at `after`, and then the one at `before`: nothing it could read may be between."""

    poll: Poll
    place: str
    after: int
    before: int
    is_inside: bool


class Back(NamedTuple):
    poll: Poll
    place: str
    last: int
    offset: int
    is_inside: bool


class View:
    """What readers of one isolation level saw. `seen`: value to the poll that saw it first."""

    def __init__(self) -> None:
        self.seen: dict[int, Poll] = {}
        self.last_polled: dict[str, int] = {}
        self.finished: set[str] = set()
        self.known: dict[str, list[int]] = {}
        """Offsets of each place that a reader has to see, in order."""

    def first_between(self, place: str, after: int, before: int) -> int | None:
        """An offset that must not be skipped."""
        offsets = self.known.get(place, [])
        index = bisect_right(offsets, after)
        return offsets[index] if index < len(offsets) and offsets[index] < before else None


class Facts:
    def __init__(self, history: History) -> None:
        self.history = history
        self.sends: dict[int, Send] = {}
        self.transactions: dict[int, Transaction] = {}
        self.fates: dict[int, Fate] = {}
        self.inits: list[Init] = []
        self.finishes: list[Finish] = []
        self.polls: list[Poll] = []
        self.at: dict[str, dict[int, int]] = {}
        """The value at each offset of each place, as it was told first."""
        self.stands: dict[int, tuple[str, int]] = {}
        """Where each value stands, as it was told first."""
        self.conflicts: dict[tuple[str, int], set[int]] = {}
        self.copies: dict[int, set[tuple[str, int]]] = {}
        self.gaps: list[Gap] = []
        self.backs: list[Back] = []
        self.views = {True: View(), False: View()}
        """By whether it reads committed data only."""
        self._positions: dict[tuple[str, str], int] = {}
        for operation in history.operations:
            if isinstance(operation, Send):
                self._note_send(operation)
            elif isinstance(operation, End):
                self._note_end(operation)
            elif isinstance(operation, Init):
                self.inits.append(operation)
            elif isinstance(operation, Finish):
                self._note_finish(operation)
        self.fates = {number: transaction.fate for number, transaction in self.transactions.items()}
        # In the order of their ends: a group is rebalanced inside of a poll, before it gives out anything.
        readings = [operation for operation in history.operations if isinstance(operation, Poll | Move)]
        for reading in sorted(readings, key=lambda reading: reading.ended):
            if isinstance(reading, Poll):
                self.polls.append(reading)
                self._note_poll(reading)
            else:
                for place, offset in reading.places.items():
                    self._positions[reading.process, place] = ANYWHERE if offset == NO_OFFSET else offset - 1
        self._note_known()

    # -- asking

    def client(self, process: str) -> Client | None:
        return self.history.clients.get(process)

    def fate_of(self, send: Send) -> Fate:
        """A record outside of transactions counts as committed once it is acknowledged."""
        if send.transaction != NO_TRANSACTION:
            return self.fates[send.transaction]
        return Fate.COMMITTED if send.is_ok else Fate.UNKNOWN

    def due(self, is_committed_view: bool) -> Iterator[Send]:
        """Sends that were acknowledged, and that readers of this isolation level have to see."""
        for send in self.sends.values():
            if send.is_ok and (not is_committed_view or self.fate_of(send) is Fate.COMMITTED):
                yield send

    # -- noting

    def _transaction(self, number: int, process: str) -> Transaction:
        found = self.transactions.get(number)
        if found is None:
            found = self.transactions[number] = Transaction(number, process)
        return found

    def _note_send(self, send: Send) -> None:
        self.sends[send.value] = send
        if send.transaction != NO_TRANSACTION:
            self._transaction(send.transaction, send.process).sends.append(send)
        if send.is_ok and send.offset != NO_OFFSET:
            self._note_place(send.place, send.offset, send.value)

    def _note_end(self, end: End) -> None:
        transaction = self._transaction(end.transaction, end.process)
        transaction.ends.append(end)
        if end.is_commit:
            transaction.asked = min(transaction.asked, end.began)

    def _note_finish(self, finish: Finish) -> None:
        self.finishes.append(finish)
        if finish.is_ok and finish.process in self.history.clients:
            self.views[finish.reads_committed].finished.add(finish.place)

    def _note_place(self, place: str, offset: int, value: int) -> None:
        known = self.at.setdefault(place, {}).setdefault(offset, value)
        if known != value:
            self.conflicts.setdefault((place, offset), {known}).add(value)
        stands = self.stands.setdefault(value, (place, offset))
        if stands != (place, offset):
            self.copies.setdefault(value, {stands}).add((place, offset))

    def _note_poll(self, poll: Poll) -> None:
        view = self.views[poll.reads_committed]
        seen = view.seen
        for place, flat in poll.read.items():
            at = self.at.setdefault(place, {})
            last = self._positions.get((poll.process, place), ANYWHERE)
            is_known = last != ANYWHERE
            is_inside = False
            highest = view.last_polled.get(place, NO_OFFSET)
            numbers = iter(flat)
            for offset, value in zip(numbers, numbers, strict=True):
                if offset != last + 1 and (is_known or is_inside):
                    if offset <= last:
                        self.backs.append(Back(poll, place, last, offset, is_inside))
                    else:
                        self.gaps.append(Gap(poll, place, last, offset, is_inside))
                last = offset
                is_inside = True
                if offset > highest:
                    highest = offset
                # Where one of the two is known already, all three were noted together.
                if at.get(offset) != value and self.stands.get(value) != (place, offset):
                    self._note_place(place, offset, value)
                if value not in seen or poll.ended < seen[value].ended:
                    seen[value] = poll
            self._positions[poll.process, place] = last
            view.last_polled[place] = highest

    def _note_known(self) -> None:
        """Readers of everything have to see all that stands somewhere. Readers of committed data have to see what was
        committed for sure, and what another one of them saw, unless that was a mistake."""
        committed = self.views[True].seen
        for place, values in self.at.items():
            offsets = sorted(values)
            self.views[False].known[place] = offsets
            self.views[True].known[place] = [
                offset for offset in offsets if self._is_for_all(values[offset], committed)
            ]

    def _is_for_all(self, value: int, committed: dict[int, Poll]) -> bool:
        send = self.sends.get(value)
        fate = Fate.UNKNOWN if send is None else self.fate_of(send)
        return fate is Fate.COMMITTED or (fate is Fate.UNKNOWN and value in committed)
