"""From a schedule that breaks something to a shorter one that breaks the same: fewer strikes, less time, fewer clients.

Greedy, and bounded by a number of runs: first half of the strikes at once, then one by one, then time, then clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from semel.sim.world.schedule import CLIENTS, SIDE_TOPICS, Schedule
from semel.sim.world.simulation import Run, simulate

MAX_RUNS = 60


class Shrinking:
    """`runs` counts what it took. `tell` is called after every run with the shortest schedule so far."""

    def __init__(
        self,
        found: Run,
        *,
        max_runs: int = MAX_RUNS,
        run: Callable[[Schedule], Run] = simulate,
        tell: Callable[[int, Schedule], None] = lambda runs, schedule: None,
    ) -> None:
        self.shortest = found
        self.runs = 0
        self._kinds = {violation.kind for violation in found.violations}
        self._max_runs = max_runs
        self._run = run
        self._tell = tell

    def shrink(self) -> Run:
        is_shorter = True
        while is_shorter and self.runs < self._max_runs:
            is_shorter = False
            for step in (self._fewer_strikes, self._less_time, self._fewer_clients):
                for candidate in step():
                    if self.runs >= self._max_runs:
                        break
                    if self._still_breaks(candidate):
                        is_shorter = True
        return self.shortest

    def _still_breaks(self, candidate: Schedule) -> bool:
        self.runs += 1
        run = self._run(candidate)
        breaks = any(violation.kind in self._kinds for violation in run.violations)
        if breaks:
            self.shortest = run
        self._tell(self.runs, self.shortest.schedule)
        return breaks

    @property
    def _schedule(self) -> Schedule:
        return self.shortest.schedule

    def _fewer_strikes(self) -> Iterator[Schedule]:
        """Each candidate is made from the shortest schedule at that moment."""
        size = len(self._schedule.strikes)
        while size >= 1:
            for start in range(0, len(self._schedule.strikes), size):
                numbers = [strike.number for strike in self._schedule.strikes]
                if start < len(numbers):
                    yield self._schedule.only(frozenset(numbers[:start] + numbers[start + size :]))
            size //= 2

    def _less_time(self) -> Iterator[Schedule]:
        for share in (0.25, 0.5, 0.75):
            yield self._schedule.shortened(round(self._schedule.seconds * share, 2))

    def _fewer_clients(self) -> Iterator[Schedule]:
        for clients in CLIENTS:
            if getattr(self._schedule.load, clients):
                yield self._schedule.without(clients)
        if self._schedule.has_keys:
            yield self._schedule.without(SIDE_TOPICS)


def replay_options(schedule: Schedule, whole: Schedule) -> list[str]:
    """The options of `semel sim` that run this part of the schedule of its seed."""
    options = ["--seed", str(schedule.seed)]
    if schedule.nodes > 1:
        options += ["--nodes", str(schedule.nodes)]
    if schedule.voters > 1:
        options += ["--voters", str(schedule.voters)]
    if schedule.strikes != whole.strikes:
        numbers = ",".join(str(strike.number) for strike in schedule.strikes)
        options += ["--strikes", numbers or "none"]
    if schedule.seconds != whole.seconds:
        options += ["--seconds", f"{schedule.seconds:g}"]
    gone = [name for name in CLIENTS if getattr(whole.load, name) and not getattr(schedule.load, name)]
    if whole.has_keys and not schedule.has_keys:
        gone.append(SIDE_TOPICS)
    if gone:
        options += ["--without", ",".join(name.replace("_", "-") for name in gone)]
    return options
