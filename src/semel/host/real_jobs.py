"""Heavy work in another process: one worker, spawned at the first job and ended after an idle while.

Spawned, never forked: a fork would inherit listening sockets, locks and the memory of the broker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from typing import TYPE_CHECKING

from semel.host.api import Arguments, Result

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

IDLE_S = 30.0


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides when we end
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing.connection

    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)  # the parent was killed: nobody would ever end us


class RealJobs:
    """A job that kills its worker fails with BrokenExecutor; the next one gets a new worker."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._executor: ProcessPoolExecutor | None = None
        self._running = 0
        self._idle_timer: asyncio.TimerHandle | None = None

    async def run(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        job = self._submit(function, *args)
        executor = self._executor
        self._running += 1
        try:
            return await asyncio.wrap_future(job)
        except BrokenExecutor:
            if self._executor is executor:
                self._shut_down()
            raise
        finally:
            self._running -= 1
            if self._running == 0 and self._executor is not None:
                self._idle_timer = asyncio.get_running_loop().call_later(self._idle_s, self._shut_down)

    def _submit(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Future[Result]:
        if self._executor is not None:
            try:
                return self._executor.submit(function, *args)
            except BrokenExecutor:  # the worker died while it had nothing to do, so nothing was begun
                self._shut_down()
        import multiprocessing  # here, since most nodes never need it and it is slow to import
        from concurrent.futures import ProcessPoolExecutor

        self._executor = ProcessPoolExecutor(
            max_workers=1, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
        )
        return self._executor.submit(function, *args)

    @property
    def has_worker(self) -> bool:
        return self._executor is not None

    def _shut_down(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    def close(self) -> None:
        """Jobs not begun are cancelled; one that runs is killed with its worker, as a kill of the node would."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._executor is not None:
            workers = list((getattr(self._executor, "_processes", None) or {}).values())
            self._shut_down()
            for worker in workers:
                worker.kill()
