"""What the world of the sink's model consists of, and worlds with one thing changed. Values only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Marker(NamedTuple):
    batch: int
    start: int
    end: int


class Checkpoint(NamedTuple):
    ends: tuple[int, ...]
    """Where each planned batch ends."""
    done: int

    def start(self, batch: int) -> int:
        return self.ends[batch - 1] if batch else 0


class Driver(NamedTuple):
    run: int
    checkpoint: int
    """Which one: the first, or the one that was restored."""
    step: str
    batch: int = 0
    start: int = 0
    end: int = 0
    position: int = 0


class Transaction(NamedTuple):
    """`owner` is the run that initialised it last, -1 after a timeout: only it may write and end."""

    name: tuple[object, ...]
    owner: int
    records: tuple[int, ...] = ()
    marker: Marker | None = None
    was_committed: bool = False


class State(NamedTuple):
    checkpoints: tuple[Checkpoint, ...]
    log: tuple[int, ...]
    markers: tuple[Marker, ...]
    """The last two, in the order of their commits; the older one is for readers who see too little."""
    decisions: tuple[tuple[int, tuple[tuple[object, ...], ...]], ...]
    transactions: tuple[Transaction, ...]
    drivers: tuple[Driver, ...]
    runs: int
    lost: int
    timeouts: int
    restores: int


def with_driver(state: State, index: int, driver: Driver) -> State:
    return state._replace(drivers=(*state.drivers[:index], driver, *state.drivers[index + 1 :]))


def without_driver(state: State, index: int) -> State:
    return state._replace(drivers=(*state.drivers[:index], *state.drivers[index + 1 :]))


def with_checkpoint(state: State, number: int, checkpoint: Checkpoint) -> State:
    return state._replace(checkpoints=(*state.checkpoints[:number], checkpoint, *state.checkpoints[number + 1 :]))


def find_transaction(state: State, name: tuple[object, ...]) -> Transaction | None:
    return next((one for one in state.transactions if one.name == name), None)


def with_transaction(state: State, transaction: Transaction) -> State:
    others = [one for one in state.transactions if one.name != transaction.name]
    return state._replace(transactions=tuple(sorted([*others, transaction], key=lambda one: repr(one.name))))


def committed(state: State, transaction: Transaction) -> State:
    log = tuple(sorted((*state.log, *transaction.records)))
    after = with_transaction(state, Transaction(transaction.name, transaction.owner))._replace(log=log)
    return after if transaction.marker is None else marked(after, transaction.marker)


def marked(state: State, marker: Marker) -> State:
    return state._replace(markers=(*state.markers, marker))


def backups_of(checkpoint: Checkpoint) -> Iterator[Checkpoint]:
    """What it was before, at any time."""
    for done in range(checkpoint.done + 1):
        for planned in range(done, min(done + 1, len(checkpoint.ends)) + 1):
            backup = Checkpoint(checkpoint.ends[:planned], done)
            if backup != checkpoint:
                yield backup
