"""Disk work off the loop: flushes, reads ahead and slow closes, each told of by a callback of the loop when it is done.

`NativeThreads` uses the compiled pool that never takes the GIL; `PythonThreads` does the same with a ThreadPoolExecutor
where the extension was not compiled. One of them belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from typing import NamedTuple, Protocol

try:
    from semel.host import _native
except ImportError:
    _native = None  # type: ignore[assignment]

THREADS = 3
RING_JOBS = 1024


class JobKind(IntEnum):
    """The numbers are those of the native pool."""

    FDATASYNC = 1
    FSYNC = 2
    WARM = 3
    CLOSE = 4


class _Job(NamedTuple):
    kind: JobKind
    fd: int
    when_done: Callable[[int], None]
    position: int
    length: int


class DiskThreads(Protocol):
    is_closed: bool

    def submit(
        self, kind: JobKind, fd: int, when_done: Callable[[int], None], position: int = 0, length: int = 0
    ) -> None:
        """Start a job. `when_done(errno)` runs on the loop when the thread is done, 0 when all is well. From the moment
        that they are being closed, it is told ECANCELED at once."""

    def close(self) -> None:
        """Wait for running jobs and cancel the others: those are told ECANCELED."""


def start_disk_threads(loop: asyncio.AbstractEventLoop) -> DiskThreads:
    return PythonThreads(loop) if _native is None else NativeThreads(loop)


def _tell(job: _Job, error: int, loop: asyncio.AbstractEventLoop) -> None:
    """What goes wrong there is not for the jobs that ended with it."""
    try:
        job.when_done(error)
    except Exception as failure:
        loop.call_exception_handler({"message": f"what follows {job} has failed", "exception": failure})


def failure(error: int, path: str) -> OSError | None:
    """What `when_done` is told, as an exception; None: all is well."""
    return OSError(error, os.strerror(error), path) if error else None


def complete(future: asyncio.Future[None], error: OSError | None) -> None:
    """For a caller that awaits a job: it may be gone meanwhile, and so may its loop."""
    if future.done() or future.get_loop().is_closed():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(None)


class NativeThreads:
    """Jobs that do not fit into the ring wait here in order; each is a caller that waits, so callers bound it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = THREADS, ring_jobs: int = RING_JOBS) -> None:
        self._loop = loop
        self._pool = _native.NativePool(threads, ring_jobs)
        self._running: dict[int, _Job] = {}
        self._waiting: deque[_Job] = deque()
        self._fd = self._pool.fileno()
        self.is_closed = False
        loop.add_reader(self._fd, self._collect)

    def submit(
        self, kind: JobKind, fd: int, when_done: Callable[[int], None], position: int = 0, length: int = 0
    ) -> None:
        job = _Job(kind, fd, when_done, position, length)
        if self.is_closed:
            _cancel(job)
        elif self._waiting or not self._start(job):
            self._waiting.append(job)

    def _start(self, job: _Job) -> bool:
        number = self._pool.submit(job.kind, job.fd, job.position, job.length)
        if number:
            self._running[number] = job
        return number != 0

    def _collect(self) -> None:
        for number, error in self._pool.collect():
            _tell(self._running.pop(number), error, self._loop)
        while self._waiting and self._start(self._waiting[0]):
            self._waiting.popleft()

    def close(self) -> None:
        self.is_closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        for number, error in self._pool.close():
            _tell(self._running.pop(number), error, self._loop)
        for job in self._waiting:
            _cancel(job)
        self._waiting.clear()


class PythonThreads:
    """The same in Python threads. Each job costs the loop a fight for the GIL: correct everywhere, fast nowhere."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = THREADS) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="semel-disk")
        self._running: dict[int, _Job] = {}
        self._begun: set[int] = set()
        self._ended: dict[int, int] = {}
        self._last_number = 0
        self.is_closed = False

    def submit(
        self, kind: JobKind, fd: int, when_done: Callable[[int], None], position: int = 0, length: int = 0
    ) -> None:
        job = _Job(kind, fd, when_done, position, length)
        if self.is_closed:
            _cancel(job)
            return
        self._last_number += 1
        self._running[self._last_number] = job
        self._executor.submit(self._work, self._last_number, job)

    def _work(self, number: int, job: _Job) -> None:
        self._begun.add(number)
        self._ended[number] = _do(job)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._collect, number)

    def _collect(self, number: int) -> None:
        job = self._running.pop(number, None)
        if job is not None:  # else close() has ended it already
            self._begun.discard(number)
            _tell(job, self._ended.pop(number), self._loop)

    def close(self) -> None:
        self.is_closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)
        for number in list(self._running):
            if number in self._begun:
                self._collect(number)
            else:
                _cancel(self._running.pop(number))


def _cancel(job: _Job) -> None:
    """End a job that was never begun. A descriptor that was given away to be closed is closed all the same."""
    if job.kind is JobKind.CLOSE:
        os.close(job.fd)
    job.when_done(0 if job.kind is JobKind.CLOSE else _ECANCELED)


_ECANCELED = errno.ECANCELED
_READ_BYTES = 256 * 1024


def _do(job: _Job) -> int:
    try:
        if job.kind is JobKind.FDATASYNC:
            os.fdatasync(job.fd)
        elif job.kind is JobKind.FSYNC:
            os.fsync(job.fd)
        elif job.kind is JobKind.CLOSE:
            os.close(job.fd)
        else:
            position, end = job.position, job.position + job.length
            while position < end:
                got = len(os.pread(job.fd, min(_READ_BYTES, end - position), position))
                if got == 0:
                    break
                position += got
    except OSError as error:
        return error.errno or errno.EIO
    return 0
