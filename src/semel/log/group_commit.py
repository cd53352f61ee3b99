"""Flushes one log: one flush at a time, and each makes durable whatever was appended during the one before.

It belongs to a log, not to a term of leadership: when a new term begins, a flush may be under way, and what it makes
durable counts for the new term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property

from semel.host.descriptors import is_short
from semel.log.log import Log

_NEVER_MS = 1 << 40
_SHORT_RETRY_S = 0.1
_NEVER_MESSAGES = 1 << 62


def _ignore() -> None:
    """Nobody asked to be told."""


class GroupCommit:
    """`told` is called when more of the log is flushed. A disk that fails ends the node through `on_broken`."""

    def __init__(self, log: Log, on_broken: Callable[[BaseException], None]) -> None:
        self.log = log
        self.told: Callable[[], None] = _ignore
        self.is_flushing = False
        self._on_broken = on_broken
        self._is_stopped = False
        self._whole_flush: asyncio.Task[None] | None = None  # the last one of more than a file
        self._over: asyncio.Future[None] | None = None  # while it stops
        self._timer: asyncio.TimerHandle | None = None

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The one that it lives in: to ask for it is a system call."""
        return asyncio.get_running_loop()

    def flush_if_due(self) -> None:
        """Begins a flush, or sees to it that one begins, as the settings of the topic want it."""
        log = self.log
        if log.config.flush_messages == 1:
            if log.is_dirty:
                self._flush_soon()
        elif log.end_offset - log.flushed_offset >= log.config.flush_messages:
            self._flush_soon()
        elif self._timer is None and log.config.flush_ms < _NEVER_MS:
            self._timer = self._loop.call_later(log.config.flush_ms / 1000, self._overdue)

    @property
    def flushes_in_turns(self) -> bool:
        """Whether the settings want a flush after so many records or so much time."""
        return self.log.config.flush_messages < _NEVER_MESSAGES or self.log.config.flush_ms < _NEVER_MS

    def _overdue(self) -> None:
        self._timer = None
        self._flush_soon()

    def _flush_soon(self) -> None:
        """When this turn of the loop is over: what else comes in it is part of the flush."""
        if not self.is_flushing and not self._is_stopped:
            self.is_flushing = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._go_on(self.log.is_dirty)

    def _go_on(self, is_due: bool) -> None:
        if is_due and not self._is_stopped:
            try:
                if not self.log.flush_then(self._flushed):
                    self._whole_flush = self._loop.create_task(self.log.flush())
                    self._whole_flush.add_done_callback(self._flushed_whole)
                return
            except Exception as error:
                self._failed(error)
        self.is_flushing = False
        if self._over is not None:
            self._over.set_result(None)

    def _flushed_whole(self, flush: asyncio.Task[None]) -> None:
        if not flush.cancelled():  # else the node has ended
            self._flushed(flush.exception())

    def _flushed(self, error: BaseException | None) -> None:
        log = self.log
        if error is not None:
            self._failed(error)
            self._go_on(False)
        elif log.config.flush_messages == 1:
            self._go_on(log.is_dirty)
            self.told()
        else:
            self._go_on(log.end_offset - log.flushed_offset >= log.config.flush_messages)

    def _failed(self, error: BaseException) -> None:
        """A partition that was deleted meanwhile has lost its files: that is no failure of the disk. Neither is want of
        descriptors: the disk was not asked, and what waits for the flush waits a little longer."""
        if self._is_stopped:
            return
        if is_short(error):
            self._loop.call_later(_SHORT_RETRY_S, self._flush_soon)
        else:
            self._on_broken(error)

    def stop(self) -> None:
        """Begins no flush any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def when_over(self) -> None:
        """Waits for the flush that is under way."""
        if self.is_flushing:
            self._over = self._loop.create_future()
            await self._over
