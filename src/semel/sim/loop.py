"""An asyncio event loop with virtual time: when nothing is ready it jumps to the next timer, so nobody ever waits.

Same code, same seed, same order: tasks and futures hash by their number, since asyncio keeps some of them in sets whose
order would otherwise follow memory addresses. (Not coroutines: give `as_completed` tasks.) There are no threads, no
sockets and no signals.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from semel.sim.power import PowerLost

T = TypeVar("T")

OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")
"""Whose code runs: a node or a client of the simulated world. Tasks inherit it, and what arrives over a connection is
handled by whoever holds that end of it. So one of them can be killed with all that it has started."""


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: what still waits would wait for ever."""


class TooMuchVirtualTime(RuntimeError):
    """The run has passed the end that it was given."""


class TooManyTurns(RuntimeError):
    """The run is busy without end: somebody tries again and again and does not wait."""


class SimFuture(asyncio.Future[T]):
    def __init__(self, *, loop: SimLoop) -> None:
        super().__init__(loop=loop)
        self.number = loop.next_number()
        self.owner = OWNER.get()

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[T]):
    def __init__(self, coroutine: Coroutine[Any, Any, T], *, loop: SimLoop, **options: Any) -> None:
        self.number = loop.next_number()
        context: contextvars.Context | None = options.get("context")
        self.owner = OWNER.get() if context is None else context.get(OWNER, "")
        if options.get("name") is None:
            options["name"] = f"task-{self.number}"
        super().__init__(coroutine, loop=loop, **options)
        loop.remember(self)

    def __hash__(self) -> int:
        return self.number


class _VirtualSelector:
    """Stands where the loop would wait for the system: time passes here and nowhere else."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout_s: float | None) -> list[Any]:
        self._loop.count_turn()
        if timeout_s is None:
            self._loop.deadlocked()
        if timeout_s > 0:
            self._loop.jump_to_next_timer()
        else:
            self._loop.catch_up()
        return []


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, *, end_s: float = float("inf"), max_turns: float = float("inf")) -> None:
        super().__init__()
        self._turns_left = max_turns
        self._now_s = 0.0
        self._end_s = end_s
        self._last_number = 0
        self._tasks: dict[int, SimTask[Any]] = {}
        self._dead_owners: set[str] = set()
        self._selector = _VirtualSelector(self)
        self._clock_resolution = (
            1e-6  # far above a float's last digit after years of virtual time, or timers never fire
        )
        self.set_task_factory(self._make_task)

    @staticmethod
    def _make_task(
        loop: asyncio.AbstractEventLoop, coroutine: Any, context: contextvars.Context | None = None, **options: Any
    ) -> asyncio.Task[Any]:
        assert isinstance(loop, SimLoop)
        if context is not None:
            options["context"] = context
        return SimTask(coroutine, loop=loop, **options)

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def remember(self, task: SimTask[Any]) -> None:
        self._tasks[task.number] = task
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        assert isinstance(task, SimTask)
        self._tasks.pop(task.number, None)

    def unfinished_tasks(self, owner: str | None = None) -> list[SimTask[Any]]:
        """In the order in which they were started: all, or those of one owner."""
        return [task for task in self._tasks.values() if owner is None or task.owner == owner]

    def end_owner(self, owner: str) -> list[SimTask[Any]]:
        """Somebody has died: its timers are off, its tasks are cancelled, and their outcome is nobody's business.
        Returns the tasks that have not ended yet: they may have something to say in their last turn."""
        self._dead_owners.add(owner)
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        for timer in timers:
            context: contextvars.Context = timer._context  # type: ignore[attr-defined]
            if context.get(OWNER, "") == owner:
                timer.cancel()
        left = self.unfinished_tasks(owner)
        for task in left:
            task.cancel()
        return left

    def time(self) -> float:
        return self._now_s

    def catch_up(self) -> None:
        """A timer within the clock's resolution fires in this turn. It must not find itself early: whoever then sets
        it again, for the same moment, would do so for ever."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if timers and timers[0].when() < self._now_s + self._clock_resolution:
            self._now_s = max(self._now_s, timers[0].when())

    def jump_to_next_timer(self) -> None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        self._now_s = max(self._now_s, timers[0].when())
        if self._now_s > self._end_s:
            raise TooMuchVirtualTime(f"{self._now_s:.3f} s, the end was set at {self._end_s:.3f} s; {self._waiting()}")

    def count_turn(self) -> None:
        self._turns_left -= 1
        if self._turns_left < 0:
            self._turns_left = float("inf")  # what is left over has to come to an end
            raise TooManyTurns(f"at {self._now_s:.3f} s; {self._waiting()}")

    def deadlocked(self) -> NoReturn:
        raise Deadlock(f"nothing is scheduled at {self._now_s:.3f} s; {self._waiting()}")

    def _waiting(self) -> str:
        names = [f"{task.get_name()} in {_place(task)}" for task in self.unfinished_tasks()]
        return "waiting: " + ("; ".join(names) if names else "no task")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        origin = context.get("future") or context.get("task")
        is_dead = getattr(origin, "owner", "") in self._dead_owners
        if not is_dead and not isinstance(context.get("exception"), PowerLost):  # a death is no news to anyone
            super().call_exception_handler(context)

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., Any], *args: Any
    ) -> NoReturn:
        raise RuntimeError("there are no threads in the simulated world: use host.jobs")

    def call_soon_threadsafe(self, *args: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("there are no threads in the simulated world: use call_soon")


def _place(task: SimTask[Any]) -> str:
    frames = task.get_stack(limit=1)
    coroutine = getattr(task.get_coro(), "__qualname__", "?")
    return f"{coroutine}:{frames[0].f_lineno}" if frames else coroutine


def run(coroutine: Coroutine[Any, Any, T], *, loop: SimLoop | None = None, end_s: float = float("inf")) -> T:
    """Run to completion in virtual time, then cancel what is left over, in the order in which it was started."""
    loop = SimLoop(end_s=end_s) if loop is None else loop
    try:
        return loop.run_until_complete(coroutine)
    finally:
        try:
            _cancel_leftovers(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


def _cancel_leftovers(loop: SimLoop) -> None:
    leftovers = loop.unfinished_tasks()
    for task in leftovers:
        task.cancel()
    for task in leftovers:
        try:
            loop.run_until_complete(task)
        except (asyncio.CancelledError, Exception, PowerLost):
            pass  # they were cut off: how they took it is not the run's result
