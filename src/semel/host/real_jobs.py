"""Heavy work in another process: one worker, started at the first job and ended after an idle while; and a thread.

A thread of ours talks to the worker over pipes, and waits without the interpreter lock.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from typing import Any

from semel.host.api import Arguments, Result
from semel.host.worker import receive, send

IDLE_S = 30.0


class RealJobs:
    """Jobs run one after the other. One that kills its worker fails with BrokenExecutor; the next gets a new worker."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._worker: subprocess.Popen[bytes] | None = None
        self._talker: ThreadPoolExecutor | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._running = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def has_worker(self) -> bool:
        return self._worker is not None

    async def run(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._talker is None:
            self._talker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semel-worker")
        loop = asyncio.get_running_loop()
        self._running += 1
        try:
            is_good, outcome = await loop.run_in_executor(self._talker, self._exchange, function, args)
        finally:
            self._running -= 1
            if self._running == 0 and not self._is_closed:
                self._idle_timer = loop.call_later(self._idle_s, self._end_worker)
        if not is_good:
            raise outcome
        result: Result = outcome
        return result

    def _exchange(self, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """In the talking thread: hands a job over and waits for its outcome."""
        if self._worker is not None and self._worker.poll() is not None:
            self._end_worker()  # it died while it had nothing to do, so nothing was begun
        if self._worker is None:
            if self._is_closed:
                raise BrokenExecutor("the jobs are closed")
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-m", "semel.host.worker", str(os.getpid())]
            self._worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, close_fds=True
            )
        worker = self._worker
        if worker.stdin is None or worker.stdout is None:
            raise BrokenExecutor("the worker has no pipes")
        try:
            send(worker.stdin, (function, args))
            outcome = receive(worker.stdout)
        except (EOFError, OSError) as error:
            self._end_worker()
            raise BrokenExecutor("the worker ended before its job") from error
        is_good, value = outcome
        return is_good, value

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()

    async def run_in_thread(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semel-job")
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def close(self) -> None:
        """Jobs not begun are cancelled, one that runs is ended with its worker."""
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        worker = self._worker
        if worker is not None:
            worker.kill()  # the talking thread sees the end of its pipe and takes care of the rest
        for pool in (self._talker, self._thread):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
        if worker is not None and self._running == 0:
            self._end_worker()
