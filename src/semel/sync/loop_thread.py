"""The thread on which the asyncio core runs for blocking programs. One per process, while somebody needs it."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar
from weakref import WeakSet

from semel.client.errors import IllegalState

T = TypeVar("T")
P = ParamSpec("P")

logger = logging.getLogger("semel.client")

_EXIT_TIMEOUT_S = 5.0


class LoopThread:
    def __init__(self) -> None:
        self.users = 0
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="semel", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs it on the loop and waits. Ctrl-C here cancels it there."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


_lock = threading.Lock()
_shared: LoopThread | None = None
_open: WeakSet[BlockingClient[Any]] = WeakSet()


def _take() -> LoopThread:
    global _shared
    with _lock:
        if _shared is None:
            _shared = LoopThread()
        _shared.users += 1
        return _shared


def _give_back(thread: LoopThread) -> None:
    global _shared
    with _lock:
        thread.users -= 1
        is_last = thread.users == 0 and thread is _shared
        if is_last:
            _shared = None
    if is_last:
        thread.stop()


def _forget_after_fork() -> None:
    """A child has the memory of the thread, but not the thread."""
    global _shared, _lock
    _lock = threading.Lock()
    _shared = None
    _open.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


@atexit.register
def _close_all() -> None:
    """A program that ends without closing still delivers what it has sent, and leaves its groups."""
    for face in list(_open):
        try:
            face.close(_EXIT_TIMEOUT_S)
        except Exception as error:
            logger.error("a %s that was still open at the end of the program: %s", type(face).__name__.lower(), error)


class Startable(Protocol):
    async def start(self) -> Any: ...


C = TypeVar("C", bound=Startable)


class BlockingClient(Generic[C]):
    """What the blocking classes share. The client behind it is made, started and used on the loop's thread alone."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._process_id = os.getpid()
        self._is_open = False
        self._thread = _take()
        try:
            self._core: C = self._thread.run(_started(make))
        except BaseException:
            _give_back(self._thread)
            raise
        self._is_open = True
        _open.add(self)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            self._check()
            if self._thread.is_current():
                raise IllegalState("a blocking call cannot be made from a callback: use the asyncio client there")
        except IllegalState:
            coroutine.close()
            raise
        return self._thread.run(self._in_order(coroutine))

    def _call_soon(self, function: Callable[[], object]) -> None:
        """On the loop's thread, without waiting for it."""
        self._thread.loop.call_soon_threadsafe(function)

    async def _in_order(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """For those who have something to do before any call."""
        return await coroutine

    def _check(self) -> None:
        name = type(self).__name__.lower()
        if self._process_id != os.getpid():
            raise IllegalState(f"this {name} was made before a fork: make one in the child process")
        if not self._is_open:
            raise IllegalState(f"this {name} was closed")

    def close(self, timeout_s: float | None = None) -> None:
        """Ends it; calling it again does nothing."""
        self._end(self._close, timeout_s)

    def _end(self, close: Callable[[float | None], Coroutine[Any, Any, T]], timeout_s: float | None) -> T | None:
        if not self._is_open or self._process_id != os.getpid():
            return None
        self._is_open = False
        _open.discard(self)
        try:
            return self._thread.run(close(timeout_s))
        finally:
            _give_back(self._thread)

    async def _close(self, timeout_s: float | None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _started(make: Callable[[], C]) -> C:
    core = make()
    await core.start()
    return core


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method of the asyncio client as one that waits for its result."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._core, *args, **kwargs))  # type: ignore[no-any-return]

    return call


def direct(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method of the asyncio client that does not wait, called on the loop's thread all the same."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def on_loop() -> T:
            return method(self._core, *args, **kwargs)

        return self._run(on_loop())  # type: ignore[no-any-return]

    return call
