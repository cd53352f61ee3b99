"""An asyncio event loop with virtual time: when nothing is ready it jumps to the next timer, so nobody ever waits.

Same code, same seed, same order: tasks and futures hash by their number, since asyncio keeps some of them in sets whose
order would otherwise follow memory addresses. (Not coroutines: give `as_completed` tasks.) There are no threads, no
sockets and no signals.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, TypeVar

from semel.sim.power import PowerLost

T = TypeVar("T")

RESOLUTION_S = 1e-6
"""Far above a float's last digit after years of virtual time, or timers never fire."""
LEAST_TIMERS = 200
"""Timers that are off are thrown away when there are more than this."""

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


class SimHandle:
    """A callback that is to run, in the context that it was asked for in. Lighter than asyncio's: a run has many."""

    __slots__ = ("_when_s", "args", "callback", "context", "is_off")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context, when_s: float = 0.0
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.is_off = False
        self._when_s = when_s

    def cancel(self) -> None:
        self.is_off = True

    def cancelled(self) -> bool:
        return self.is_off

    def when(self) -> float:
        return self._when_s


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, *, end_s: float = float("inf"), max_turns: float = float("inf")) -> None:
        super().__init__()
        self._turns_left = max_turns
        self._now_s = 0.0
        self._end_s = end_s
        self._last_number = 0
        self._tasks: dict[int, SimTask[Any]] = {}
        self._dead_owners: set[str] = set()
        self._frozen: dict[str, list[SimHandle]] = {}
        """Owners that do not get on, with what they will do when they wake up."""
        self._soon: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._timers_set = 0
        self._timers_off_at = LEAST_TIMERS
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

    def count_tasks(self) -> int:
        return len(self._tasks)

    def end_owner(self, owner: str) -> list[SimTask[Any]]:
        """Somebody has died: its timers are off, its tasks are cancelled, and their outcome is nobody's business.
        Returns the tasks that have not ended yet: they may have something to say in their last turn."""
        self._dead_owners.add(owner)
        self.thaw(owner)
        for _, _, timer in self._timers:
            if timer.context.get(OWNER, "") == owner:
                timer.cancel()
        left = self.unfinished_tasks(owner)
        for task in left:
            task.cancel()
        return left

    # -- somebody does not get on for a while

    def freeze(self, owner: str) -> None:
        """As SIGSTOP: nothing of it runs, and what it has missed runs at once when it wakes up."""
        self._frozen.setdefault(owner, [])

    def is_frozen(self, owner: str) -> bool:
        return owner in self._frozen

    def thaw(self, owner: str) -> None:
        self._soon.extend(self._frozen.pop(owner, ()))

    def holds_back(self, context: contextvars.Context, callback: Callable[[], None]) -> bool:
        """Whether the owner of a context is frozen: then it is called back when it wakes up."""
        if not self._frozen:
            return False
        held = self._frozen.get(context.get(OWNER, ""))
        if held is None:
            return False
        held.append(SimHandle(callback, (), contextvars.copy_context()))
        return True

    # -- turns

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        handle = SimHandle(callback, args, contextvars.copy_context() if context is None else context)
        self._soon.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay_s: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        return self.call_at(self._now_s + delay_s, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when_s: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        handle = SimHandle(callback, args, contextvars.copy_context() if context is None else context, when_s)
        self._timers_set += 1
        heappush(self._timers, (when_s, self._timers_set, handle))  # of two for one moment the older is first
        if len(self._timers) > self._timers_off_at:
            self._timers = [timer for timer in self._timers if not timer[2].is_off]
            heapify(self._timers)
            self._timers_off_at = max(LEAST_TIMERS, 2 * len(self._timers))
        return handle

    def timers(self) -> list[SimHandle]:
        """Those that are set, in no order."""
        return [handle for _, _, handle in self._timers if not handle.is_off]

    def _run_once(self) -> None:
        self.count_turn()
        timers, soon = self._timers, self._soon
        while timers and timers[0][2].is_off:
            heappop(timers)
        if not soon and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                self.deadlocked()
            self._jump_to(timers[0][0])
        # A timer within the clock's resolution fires in this turn. It must not find itself early: whoever then sets it
        # again, for the same moment, would do so for ever.
        while timers and timers[0][0] < self._now_s + RESOLUTION_S:
            when_s, _, handle = heappop(timers)
            if not handle.is_off:
                self._now_s = max(self._now_s, when_s)
                soon.append(handle)
        for _ in range(len(soon)):
            handle = soon.popleft()
            if handle.is_off or (self._frozen and self._is_held_back(handle)):
                continue
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": f"error in {handle.callback!r}", "exception": error})

    def _is_held_back(self, handle: SimHandle) -> bool:
        held = self._frozen.get(handle.context.get(OWNER, ""))
        if held is None:
            return False
        held.append(handle)
        return True

    def _jump_to(self, when_s: float) -> None:
        self._now_s = max(self._now_s, when_s)
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
