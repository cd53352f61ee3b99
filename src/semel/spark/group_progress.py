"""Tells a group how far the query has come, for tools that show the lag of groups. Nothing relies on it.

So it never fails the query and hardly delays it: a commit that does not come back at once goes on in the background,
and if more follow meanwhile, only the newest is made.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from semel.client.errors import SemelError
from semel.spark.offsets import Offsets

logger = logging.getLogger("semel.spark")

_LONGEST_WAIT_S = 0.25


class GroupProgress:
    def __init__(self, group_id: str, commit: Callable[[Offsets], None]) -> None:
        self._group_id = group_id
        self._commit = commit
        self._lock = threading.Lock()
        self._reached: Offsets = {}
        self._newest: Offsets | None = None
        self._thread: threading.Thread | None = None
        self._last_problem = ""

    def reached(self, offsets: Offsets) -> None:
        """Returns when it is committed, or after a quarter of a second."""
        if not offsets or offsets == self._reached:
            return
        self._reached = offsets
        with self._lock:
            self._newest = offsets
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="semel group progress", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(_LONGEST_WAIT_S)

    def _run(self) -> None:
        while True:
            with self._lock:
                offsets, self._newest = self._newest, None
                if offsets is None:
                    self._thread = None
                    return
            try:
                self._commit(offsets)
                self._last_problem = ""
            except SemelError as error:
                self._tell(str(error))

    def _tell(self, problem: str) -> None:
        """Once, not with every batch."""
        if problem != self._last_problem:
            logger.warning("progress was not committed for group %s: %s", self._group_id, problem)
            self._last_problem = problem

    def close(self) -> None:
        with self._lock:
            self._newest = None
            thread = self._thread
        if thread is not None:
            thread.join(_LONGEST_WAIT_S)
