"""Tells the operator what could not be read. Readers that come again and again do not fill the log."""

from __future__ import annotations

import logging

from semel.host.complaints import Complaints
from semel.log.errors import CorruptSegment

logger = logging.getLogger("semel.broker")


class ReadFailures:
    def __init__(self) -> None:
        self._complaints = Complaints(logger)
        self._reported: set[tuple[str, int]] = set()

    def damaged(self, damage: CorruptSegment) -> None:
        """Reported once per place."""
        place = (damage.path, damage.position)
        if place not in self._reported:
            self._reported.add(place)
            logger.error("%s: not served", damage)

    def unreadable(self, error: OSError) -> None:
        """The disk refuses to be read, or this process may not open more files: the reader asks again."""
        self._complaints.say("unreadable", logging.ERROR, "a fetch was answered with an error: %s", error)
