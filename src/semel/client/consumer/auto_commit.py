"""Commits positions by itself: every interval while the program polls, before partitions are revoked, and at the end.

A position is what the program has been given before it asked for more, so nothing is committed that it has not had the
chance to finish: at least once. A position that is committed already is not committed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from semel.client.consumer.commits import GroupOffsets
from semel.client.consumer.positions import PartitionReaders, Reading
from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import CommitFailed, SemelError
from semel.client.metadata import TopicPartition
from semel.client.values import OffsetAndMetadata

logger = logging.getLogger("semel.client")


class AutoCommit:
    def __init__(self, settings: ConsumerSettings, readings: PartitionReaders, offsets: GroupOffsets) -> None:
        self._interval_s = settings.auto_commit_interval_ms / 1000
        self._timeout_s = settings.api_timeout_s
        self._readings = readings
        self._offsets = offsets
        self._due_s: float | None = None
        self._task: asyncio.Task[None] | None = None

    def tick(self, now_s: float) -> None:
        """The program asks for more: what it was given before is done. Commits if the interval has passed."""
        if self._due_s is None:
            self._due_s = now_s + self._interval_s
        elif now_s >= self._due_s and self._task is None:
            self._due_s = now_s + self._interval_s
            self.begin()

    def begin(self) -> None:
        """Commits in the background, unless a commit runs already."""
        offsets = positions(self._readings)
        if offsets and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._commit(offsets), name="auto-commit")

    async def now(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None) -> None:
        """Commits, and logs what stands in the way: nobody has asked for this commit who could be told."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            await self._offsets.commit(offsets, timeout_s)
            note_committed(self._readings, offsets)
        except CommitFailed as error:
            logger.warning("auto-commit came too late: %s", error)
        except SemelError as error:
            logger.warning("auto-commit failed: %s", error)

    async def _commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            await self.now(offsets)
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def positions(readings: Iterable[Reading], *, also_committed: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
    """Where the partitions stand that have a position; those that are committed only if asked for."""
    return {
        reading.partition: OffsetAndMetadata(reading.position, leader_epoch=reading.position_epoch)
        for reading in readings
        if reading.has_position and (also_committed or reading.position != reading.committed_offset)
    }


def note_committed(readings: PartitionReaders, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    for partition, committed in offsets.items():
        reading = readings.get(partition)
        if reading is not None:
            reading.committed_offset = committed.offset
