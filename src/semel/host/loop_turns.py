"""Counts the turns of an event loop that take too long: nobody else is served meanwhile.

A turn is what the loop does between two looks at its sockets. It is measured twice: by the clock, on which other
programs of a busy machine count, too, and by the processor time of its thread, which is what this program has done.

It is cheap enough to be always on, because it takes the place of a selector of the standard library and does less: the
clock is read twice a turn (0.05 us each), the processor time, which is a system call, once for every half millisecond
of work. So the processor time of a turn is known to half a millisecond, and never told too small.
"""

from __future__ import annotations

import asyncio
import logging
import math
import selectors
from collections.abc import Callable
from select import EPOLLIN, EPOLLOUT
from time import monotonic_ns, thread_time_ns

logger = logging.getLogger("semel.host")

LIMIT_MS = 5
_LIMIT_NS = LIMIT_MS * 1_000_000
_LOOK_NS = 500_000
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class SlowTurns:
    """Turns over the limit by one measure, and the longest of all."""

    __slots__ = ("count", "longest_ns")

    def __init__(self) -> None:
        self.count = 0
        self.longest_ns = 0

    def note(self, taken_ns: int) -> None:
        if taken_ns > self.longest_ns:
            self.longest_ns = taken_ns
        if taken_ns > _LIMIT_NS:
            self.count += 1

    @property
    def longest_ms(self) -> float:
        return self.longest_ns / 1e6

    def document(self) -> dict[str, float]:
        return {"count": self.count, "longest_ms": round(self.longest_ms, 2)}


class LoopTurns(selectors.EpollSelector):
    """The selector of a loop, see `new_loop`. It belongs to the thread of that loop."""

    def __init__(
        self, now_ns: Callable[[], int] = monotonic_ns, processor_ns: Callable[[], int] = thread_time_ns
    ) -> None:
        super().__init__()
        self._poll = self._selector.poll  # type: ignore[attr-defined]
        self._known: dict[int, selectors.SelectorKey] = self._fd_to_key  # type: ignore[attr-defined]
        self._now_ns = now_ns
        self._processor_ns = processor_ns
        self.reset()

    def reset(self) -> None:
        """Forgets what was: the node begins to serve."""
        self.by_clock = SlowTurns()
        self.by_processor = SlowTurns()
        self._worked_ns = 0  # by the clock, since the processor was last asked
        self._processed_ns = self._processor_ns()
        self._began_ns = self._now_ns()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As the selector of the standard library, whose time between two calls is a turn."""
        taken_ns = self._now_ns() - self._began_ns
        self._worked_ns += taken_ns
        if self._worked_ns > _LOOK_NS:
            self._turn_over(taken_ns)
        if timeout is None:
            timeout = -1
        elif timeout > 0:
            timeout = math.ceil(timeout * 1e3) * 1e-3  # in whole milliseconds, and not too early
        known = self._known
        ready: list[tuple[selectors.SelectorKey, int]] = []
        try:
            found = self._poll(timeout, len(known) or 1)
        except InterruptedError:
            found = ready
        self._began_ns = self._now_ns()
        for fd, events in found:
            key = known.get(fd)
            if key is not None:
                # An error is for both, whoever waits.
                wanted = (_WRITE if events & ~EPOLLIN else 0) | (_READ if events & ~EPOLLOUT else 0)
                ready.append((key, wanted & key.events))
        return ready

    def _turn_over(self, taken_ns: int) -> None:
        self._worked_ns = 0
        before_ns, self._processed_ns = self._processed_ns, self._processor_ns()
        processed_ns = min(self._processed_ns - before_ns, taken_ns)
        self.by_clock.note(taken_ns)
        self.by_processor.note(processed_ns)
        if processed_ns > _LIMIT_NS:
            text = "a turn of the loop took %.1f ms, %.1f ms of them of the processor"
            logger.debug(text, taken_ns / 1e6, processed_ns / 1e6)

    def told(self) -> str:
        """For the log."""
        return (
            f"turns of the loop over {LIMIT_MS} ms: {self.by_processor.count} by processor time, longest "
            f"{self.by_processor.longest_ms:.1f} ms; {self.by_clock.count} by the clock, longest "
            f"{self.by_clock.longest_ms:.1f} ms"
        )

    def document(self) -> dict[str, object]:
        return {
            "over_ms": LIMIT_MS,
            "processor": self.by_processor.document(),
            "clock": self.by_clock.document(),
        }

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that is counted here: one for each LoopTurns."""
        return asyncio.SelectorEventLoop(self)
