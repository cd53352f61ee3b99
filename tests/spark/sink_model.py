"""Explicit-state check of designs for the sink: every order of events of a small world, and the shortest way to harm.

The world: three batches over a source whose end moves, so that a batch that is planned anew may be another one; drivers
that crash, or are thought to be dead and go on as zombies; a checkpoint that is replaced by its backup while zombies of
the old one live on; transactions that the coordinator aborts for their time; questions and answers that get lost.

Harm: a record is committed twice; or a checkpoint counts a batch as done whose records are not committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sink_model_states import (
    Checkpoint,
    Driver,
    Marker,
    State,
    Transaction,
    backups_of,
    committed,
    find_transaction,
    marked,
    with_checkpoint,
    with_driver,
    with_transaction,
    without_driver,
)

BATCHES = 3
SIZES = (1, 2)


@dataclass(frozen=True)
class Design:
    """One transaction per batch, unless `members` says otherwise. The defaults are the design that we use."""

    order: tuple[str, ...] = ("init", "read", "write", "end")
    """The steps of a commit."""
    rule: str = "exact"
    """exact: b with its digest is done, b - 1 goes on, others are refused. at_least: b or more is done. number: as
    exact, without the digest."""
    marker: str = "inside"
    """inside the transaction, or in a file before or after its end."""
    unknown: str = "again"
    """After a lost answer: again from the first step, resend without looking at the marker, or assume it is done."""
    reads: str = "all"
    """all: up to the high watermark. committed: up to the last stable offset, which others may hold back."""
    members: str = ""
    """Transactions of tasks, one for each record, ended by the driver after a decision in a file; their ids are fixed,
    or unique to the run."""
    times_out: bool = True
    abort: str = "none"
    """What `abort` does with the members: nothing, or it ends them."""


@dataclass(frozen=True)
class World:
    """How much may go wrong."""

    runs: int = 3
    lost: int = 2
    timeouts: int = 2
    restores: int = 1


Move = tuple[str, State]


class Model:
    def __init__(self, design: Design, world: World) -> None:
        self.design = design
        self.world = world

    def first(self) -> State:
        world = self.world
        return State((Checkpoint((), 0),), (), (), (), (), (), world.runs, world.lost, world.timeouts, world.restores)

    def moves(self, state: State) -> Iterator[Move]:
        kept = 2 if self.design.reads == "committed" else 1
        for label, following in self._all_moves(state):
            yield label, following._replace(markers=following.markers[-kept:])

    def _all_moves(self, state: State) -> Iterator[Move]:
        yield from self._surroundings(state)
        for index, driver in enumerate(state.drivers):
            yield f"run {driver.run} crashes", without_driver(state, index)
            yield from self._steps(state, index, driver)

    def _surroundings(self, state: State) -> Iterator[Move]:
        newest = len(state.checkpoints) - 1
        if state.runs > 0 and len(state.drivers) < 2:
            run = self.world.runs - state.runs
            drivers = (*state.drivers, Driver(run, newest, "plan"))
            yield f"run {run} starts", state._replace(drivers=drivers, runs=state.runs - 1)
        if state.restores > 0:
            for backup in backups_of(state.checkpoints[-1]):
                restored = (*state.checkpoints, backup)
                after = state._replace(checkpoints=restored, restores=state.restores - 1)
                yield f"a backup is restored: {backup}", after
        if state.timeouts > 0 and self.design.times_out:
            for transaction in state.transactions:
                if transaction.records or transaction.marker:
                    ended = Transaction(transaction.name, -1)
                    after = with_transaction(state, ended)._replace(timeouts=state.timeouts - 1)
                    yield f"{transaction.name} is aborted for its time", after

    def _steps(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        name = f"run {driver.run}"
        if driver.step == "plan":
            yield from self._plan(state, index, driver)
        elif driver.step == "log":
            checkpoint = state.checkpoints[driver.checkpoint]
            if checkpoint.done != driver.batch:
                yield f"{name} finds batch {driver.batch} logged: it fails", without_driver(state, index)
                return
            done = checkpoint._replace(done=driver.batch + 1)
            after = with_checkpoint(state, driver.checkpoint, done)
            yield f"{name} logs batch {driver.batch}", with_driver(after, index, driver._replace(step="plan"))
        elif self.design.members:
            yield from MemberSteps(self.design).steps(state, index, driver)
        else:
            yield from SingleSteps(self.design).steps(state, index, driver)

    def _plan(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        checkpoint = state.checkpoints[driver.checkpoint]
        batch = checkpoint.done
        if batch == BATCHES:
            yield f"run {driver.run} has finished", without_driver(state, index)
            return
        first = "open" if self.design.members else self.design.order[0]
        if len(checkpoint.ends) > batch:
            start, end = checkpoint.start(batch), checkpoint.ends[batch]
            again = Driver(driver.run, driver.checkpoint, first, batch, start, end, start)
            yield f"run {driver.run} runs batch {batch} again", with_driver(state, index, again)
            return
        for size in (2,) if self.design.members else SIZES:
            start = checkpoint.start(batch)
            planned = checkpoint._replace(ends=(*checkpoint.ends, start + size))
            after = with_checkpoint(state, driver.checkpoint, planned)
            new = Driver(driver.run, driver.checkpoint, first, batch, start, start + size, start)
            yield f"run {driver.run} plans batch {batch} as {start}-{start + size}", with_driver(after, index, new)

    @staticmethod
    def harm(state: State) -> str | None:
        if len(set(state.log)) < len(state.log):
            return f"a record is committed twice: {state.log}"
        for checkpoint in state.checkpoints:
            if checkpoint.done and set(range(checkpoint.ends[checkpoint.done - 1])) - set(state.log):
                return f"{checkpoint.done} batches count as done, committed is {state.log}"
        return None


class SingleSteps:
    """One transaction, in `commit`."""

    name = ("sink",)

    def __init__(self, design: Design) -> None:
        self.design = design

    def steps(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        yield from getattr(self, f"_{driver.step}")(state, index, driver)

    def _next(self, driver: Driver) -> Driver:
        order = self.design.order
        return driver._replace(step=order[order.index(driver.step) + 1])

    def _init(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        after = with_transaction(state, Transaction(self.name, driver.run))
        yield (
            f"run {driver.run} InitProducerId",
            with_driver(after, index, self._next(driver)._replace(position=driver.start)),
        )

    def _reinit(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        after = with_transaction(state, Transaction(self.name, driver.run))
        again = driver._replace(step="write", position=driver.start)
        yield f"run {driver.run} InitProducerId, without a look at the marker", with_driver(after, index, again)

    def _read(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        seen = {state.markers[-1:]}
        if self.design.reads == "committed":
            seen.add(state.markers[-2:-1])
        for found in seen:
            verdict = self._verdict(found[0] if found else None, driver)
            label = f"run {driver.run} reads {found[0] if found else 'no marker'}: {verdict}"
            if verdict == "refused":
                yield label, without_driver(state, index)
            else:
                following = driver._replace(step="log") if verdict == "done" else self._next(driver)
                yield label, with_driver(state, index, following)

    def _verdict(self, found: Marker | None, driver: Driver) -> str:
        rule = self.design.rule
        if found is None:
            return "go on" if driver.batch == 0 or rule == "at_least" else "refused"
        if rule == "at_least":
            return "done" if found.batch >= driver.batch else "go on"
        if found.batch == driver.batch:
            is_same = (found.start, found.end) == (driver.start, driver.end)
            return "done" if is_same or rule == "number" else "refused"
        return "go on" if found.batch == driver.batch - 1 else "refused"

    def _write(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        transaction = find_transaction(state, self.name)
        if transaction is None or transaction.owner != driver.run:
            yield f"run {driver.run} is fenced", without_driver(state, index)
        elif driver.position < driver.end:
            # Only the owner writes, and a transaction ends as a whole: so its records may come in one step.
            grown = transaction._replace(records=tuple(range(driver.start, driver.end)))
            after = with_transaction(state, grown)
            written = driver._replace(position=driver.end)
            yield f"run {driver.run} writes {driver.start}-{driver.end}", with_driver(after, index, written)
        else:
            marker = Marker(driver.batch, driver.start, driver.end)
            after = state
            if self.design.marker == "inside":
                after = with_transaction(state, transaction._replace(marker=marker))
            elif self.design.marker == "before":
                after = marked(state, marker)
            yield f"run {driver.run} writes its marker, or not yet", with_driver(after, index, self._next(driver))

    def _end(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        transaction = find_transaction(state, self.name)
        if transaction is None or transaction.owner != driver.run:
            yield f"run {driver.run} is fenced at EndTxn", without_driver(state, index)
            return
        after = committed(state, transaction)
        following = driver._replace(step="mark" if self.design.marker == "after" else "log")
        yield f"run {driver.run} EndTxn", with_driver(after, index, following)
        if state.lost > 0:
            unsure = self._unsure(driver)
            for label, left in (("EndTxn, its answer is lost", after), ("EndTxn is lost", state)):
                yield f"run {driver.run} {label}", with_driver(left._replace(lost=state.lost - 1), index, unsure)

    def _unsure(self, driver: Driver) -> Driver:
        steps = {"again": self.design.order[0], "resend": "reinit", "assume": "log"}
        return driver._replace(step=steps[self.design.unknown])

    def _mark(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        after = marked(state, Marker(driver.batch, driver.start, driver.end))
        yield f"run {driver.run} writes its marker", with_driver(after, index, driver._replace(step="log"))


class MemberSteps:
    """Each record in a transaction of its task; the driver decides in a file, and then ends them one by one."""

    def __init__(self, design: Design) -> None:
        self.design = design

    def _name(self, driver: Driver, position: int) -> tuple[object, ...]:
        task = position - driver.start
        return ("task", task) if self.design.members == "fixed" else ("task", task, driver.run, driver.batch)

    def steps(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        yield from getattr(self, f"_{driver.step}")(state, index, driver)

    def _open(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        is_decided = any(batch == driver.batch for batch, _ in state.decisions)
        step = "finish" if is_decided else "task"
        yield f"run {driver.run} looks for a decision: {step}", with_driver(state, index, driver._replace(step=step))

    def _task(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        if driver.position == driver.end:
            yield f"run {driver.run} has all messages", with_driver(state, index, driver._replace(step="decide"))
            return
        written = Transaction(self._name(driver, driver.position), driver.run, (driver.position,))
        after = with_transaction(state, written)
        yield (
            f"run {driver.run}: the task of {driver.position} initialises and writes",
            with_driver(after, index, driver._replace(position=driver.position + 1)),
        )

    def _decide(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        finish = driver._replace(step="finish", position=driver.start)
        if any(batch == driver.batch for batch, _ in state.decisions):
            yield f"run {driver.run} finds a decision", with_driver(state, index, finish)
            return
        names = tuple(self._name(driver, position) for position in range(driver.start, driver.end))
        after = state._replace(decisions=(*state.decisions, (driver.batch, names)))
        yield f"run {driver.run} decides", with_driver(after, index, finish)
        if state.lost > 0:
            given_up = self._given_up(after._replace(lost=state.lost - 1), driver)
            yield f"run {driver.run} decides, its answer is lost: abort()", without_driver(given_up, index)

    def _finish(self, state: State, index: int, driver: Driver) -> Iterator[Move]:
        if driver.position == driver.end:
            yield f"run {driver.run} has ended all", with_driver(state, index, driver._replace(step="log"))
            return
        names = next(names for batch, names in state.decisions if batch == driver.batch)
        transaction = find_transaction(state, names[driver.position - driver.start])
        after = state if transaction is None or not transaction.records else committed(state, transaction)
        following = driver._replace(position=driver.position + 1)
        yield f"run {driver.run} ends the task of {driver.position}", with_driver(after, index, following)

    def _given_up(self, state: State, driver: Driver) -> State:
        if self.design.abort == "none":
            return state
        for position in range(driver.start, driver.end):
            transaction = find_transaction(state, self._name(driver, position))
            if transaction is not None and transaction.owner == driver.run:
                state = with_transaction(state, Transaction(transaction.name, driver.run))
        return state


# -- the search


class Verdict(NamedTuple):
    harm: str | None
    trace: list[str]
    states: int
    finished: int
    """States in which some checkpoint has all batches done: a design that refuses everything does no harm either."""


def explore(design: Design, world: World, most_states: int = 3_000_000) -> Verdict:
    """Breadth first, so that a trace is a shortest one. Raises if it does not come to an end."""
    model = Model(design, world)
    first = model.first()
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    queue = deque([first])
    finished = 0
    while queue:
        state = queue.popleft()
        harm = model.harm(state)
        if harm is not None:
            return Verdict(harm, _trace(came_from, state), len(came_from), finished)
        finished += any(checkpoint.done == BATCHES for checkpoint in state.checkpoints)
        for label, following in model.moves(state):
            if following not in came_from:
                came_from[following] = (state, label)
                queue.append(following)
        if len(came_from) > most_states:
            raise AssertionError(f"more than {most_states} states")
    return Verdict(None, [], len(came_from), finished)


def _trace(came_from: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    labels: list[str] = []
    while (before := came_from[state]) is not None:
        state, label = before
        labels.append(label)
    return labels[::-1]
