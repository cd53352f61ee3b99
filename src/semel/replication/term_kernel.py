# cython: language_level=3, boundscheck=False, wraparound=False
"""How far a term of leadership is committed, and who waits for it.

Rule: `TermEnd.advance` alone moves a high watermark, and only up. Everyone else asks, or waits in `waiting` or
`watchers`.
Compiled or plain Python, with the same results. C types stand in the .pxd file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Callable

    from semel.log.append_kernel import LogEnd

compiled: bool = cython.compiled


@cython.cclass
class Generation:
    """A number that is raised whenever a permission, a leader or a setting changes. What was concluded from them in one
    generation holds as long as the number stays."""

    number: int

    def __init__(self) -> None:
        self.number = 0

    def raise_it(self) -> None:
        self.number += 1


@cython.cclass
class TermEnd:
    """What every append of a term touches."""

    log: LogEnd
    leader_epoch: int
    is_closed: bool
    # Whether what is written is committed; otherwise what is flushed is (flush.messages=1).
    commits_at_append: bool
    # Whether the topic wants a flush after so many records or so much time.
    flushes_in_turns: bool
    # Offsets that somebody wants to be committed, in order, each with how long it is waited for, and a future.
    waiting: deque[tuple[int, int, asyncio.Future[None]]]
    # Who wants to know of anything new to read: each is called once or more.
    watchers: dict[object, Callable[[], None]]

    def appended(self) -> None:
        """Something was appended: it is committed now, or will be when it is flushed."""
        if self.commits_at_append:
            self.advance(self.log.end_offset)
            if not self.flushes_in_turns:
                return
        self.flush_if_due()

    def flush_if_due(self) -> None:
        raise NotImplementedError

    def advance(self, high_watermark: cython.longlong) -> None:
        """Moves the high watermark up, never back, and wakes who waited for it."""
        log: LogEnd = self.log
        if high_watermark <= log.high_watermark:
            return
        log.high_watermark = high_watermark
        if self.waiting:
            self.release_waiting()
        if self.watchers:
            self.wake_watchers()

    def release_waiting(self) -> None:
        raise NotImplementedError

    def wake_watchers(self) -> None:
        raise NotImplementedError
