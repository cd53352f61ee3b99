"""Tells the operator what could not be read. Readers that come again and again do not fill the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from semel.host.complaints import Complaints
from semel.log.errors import CorruptSegment
from semel.replication.partition import Partition

logger = logging.getLogger("semel.broker")


class ReadFailures:
    """`on_damage` gets the topic id and the number of a partition of which something is damaged."""

    def __init__(self, on_damage: Callable[[bytes, int], None] = lambda topic_id, index: None) -> None:
        self._on_damage = on_damage
        self._complaints = Complaints(logger)
        self._reported: set[tuple[str, int]] = set()

    def damaged(self, damage: CorruptSegment, partition: Partition) -> None:
        """Reported once per place."""
        place = (damage.path, damage.position)
        if place not in self._reported:
            self._reported.add(place)
            logger.error("%s: not served", damage)
            self._on_damage(partition.topic_id, partition.index)

    def unreadable(self, error: OSError) -> None:
        """The disk refuses to be read, or this process may not open more files: the reader asks again."""
        self._complaints.say("unreadable", logging.ERROR, "a fetch was answered with an error: %s", error)
