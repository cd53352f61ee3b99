"""Keeps a server's loop awake for a moment when the next request is nearly there: to wake a sleeping core takes longer
than to serve one.

Only while requests come one after the other in short gaps, as from a client that waits for each answer; and not while a
peer has to read before anything can go on. Others are served meanwhile: the loop turns, and gives way to any process
that wants the core. To be woken costs the core as much as a gap of some 30 us; to stay awake costs little or nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from time import monotonic_ns

SHORT_GAP_NS = 100_000


class Wakefulness:
    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._served_ns = now_ns() - SHORT_GAP_NS
        self._is_awake = False
        self._may_wait = False

    def serve(self, serve: Callable[[], None], is_held_up: Callable[[], object]) -> None:
        """Calls `serve`, and stays awake after it if what came before was not long ago; `is_held_up` by a peer?"""
        was_short = self._now_ns() - self._served_ns < SHORT_GAP_NS
        serve()
        self._served_ns = self._now_ns()
        self._may_wait = was_short and not is_held_up()
        if self._may_wait and not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._stay_awake)

    def _stay_awake(self) -> None:
        if self._may_wait and self._now_ns() - self._served_ns < SHORT_GAP_NS:
            os.sched_yield()
            self._loop.call_soon(self._stay_awake)
        else:
            self._is_awake = False
