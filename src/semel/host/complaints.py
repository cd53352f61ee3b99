"""Complaints that may come again and again, perhaps because a peer wants it so: said once, and then counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable

PAUSE_S = 60.0
_MOST_KINDS = 1000


class _Kind:
    __slots__ = ("args", "count", "level", "text")

    def __init__(self) -> None:
        self.count = 0
        self.level = logging.WARNING
        self.text = ""
        self.args: tuple[object, ...] = ()


class Complaints:
    """Each kind is said at once. What comes within a minute is counted, and told in one line, with the last of them,
    when the minute is over: so each kind takes a line a minute at most, and none is lost. DEBUG shows all of them."""

    def __init__(self, logger: logging.Logger, pause_s: float = PAUSE_S) -> None:
        self._logger = logger
        self._pause_s = pause_s
        self._kinds: dict[Hashable, _Kind] = {}

    def say(
        self, kind: Hashable, level: int, text: str, *args: object, exc_info: BaseException | bool | None = None
    ) -> None:
        """`kind` is chosen by the caller and never by a peer; text and arguments are those of logging."""
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) < _MOST_KINDS:
                self._kinds[kind] = _Kind()
                asyncio.get_running_loop().call_later(self._pause_s, self._pause_is_over, kind)
            self._logger.log(level, text, *args, exc_info=exc_info)
        else:
            self._logger.debug(text, *args, exc_info=exc_info)
            known.count += 1
            known.level, known.text, known.args = level, text, args

    def _pause_is_over(self, kind: Hashable) -> None:
        known = self._kinds[kind]
        if not known.count:
            del self._kinds[kind]
            return
        seconds = f"{self._pause_s:.0f}"
        if known.count == 1:
            self._logger.log(known.level, known.text, *known.args)
        else:
            text = known.text + " (%d like it within %s s, this is the last)"
            self._logger.log(known.level, text, *known.args, known.count, seconds)
        known.count, known.args = 0, ()
        asyncio.get_running_loop().call_later(self._pause_s, self._pause_is_over, kind)
