"""Tells the log file of the node when its disk begins to refuse writes, and when it takes them again.

One per data directory, for all partitions in it: a full disk refuses thousands of writes, and one line says so. It is
over when a partition that was refused has taken a write and none was refused for a second: while a disk is nearly full,
small batches fit and large ones do not.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # not loaded by the commands that only look into files
    import asyncio

logger = logging.getLogger("semel.log")

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_CALM_S = 1.0
_AGAIN_S = 60.0


class DiskTrouble:
    """Only `refused` begins trouble and only `taken`, a second later, ends it."""

    def __init__(self) -> None:
        self._refused = 0
        self._told_s = 0.0
        self._ending: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        return self._refused > 0

    def refused(self, directory: str, error: OSError, loop: asyncio.AbstractEventLoop) -> None:
        """A write to `directory` was refused. The first one is told, and then the count, once a minute."""
        self.close()
        self._refused += 1
        now_s = loop.time()
        if self._refused > 1 and now_s - self._told_s < _AGAIN_S:
            return
        self._told_s = now_s
        reason = error.strerror or str(error)
        if self._refused > 1:
            logger.error("%s: the disk still refuses writes, %d until now: %s", directory, self._refused, reason)
            return
        advice = "make room on it" if error.errno in NO_SPACE else "see what is wrong with it"
        logger.error(
            "%s: the disk refuses writes: %s; %s: producers are answered KAFKA_STORAGE_ERROR until then",
            directory,
            reason,
            advice,
        )

    def taken(self, loop: asyncio.AbstractEventLoop) -> None:
        """A partition that was refused has taken a write."""
        if self.is_on and self._ending is None:
            self._ending = loop.call_later(_CALM_S, self._end)

    def _end(self) -> None:
        logger.error("the disk takes writes again, after it has refused %d", self._refused)
        self._ending = None
        self._refused = 0

    def close(self) -> None:
        """Nothing is told any more of what is taken."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
