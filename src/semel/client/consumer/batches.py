"""Batches with a way back: what `semel.transform` needs of a consumer. Whoever reads by these commits by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

from semel.client.consumer.auto_commit import note_committed, positions
from semel.client.consumer.parts import Parts
from semel.client.consumer.positions import Reading
from semel.client.errors import Closed
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity, K, K_co, Message, OffsetAndMetadata, V, V_co


@dataclass(frozen=True, eq=False)
class Batch(Generic[K_co, V_co]):
    """Messages that are handled as one. Iterating gives them all, partition after partition."""

    partitions: Mapping[TopicPartition, Sequence[Message[K_co, V_co]]]
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = field(repr=False)
    """What to commit when it is done: where the consumer stands behind it."""
    starts: Mapping[Reading, int] = field(repr=False)
    """Where the consumer stood before it."""

    def __iter__(self) -> Iterator[Message[K_co, V_co]]:
        for messages in self.partitions.values():
            yield from messages

    def __len__(self) -> int:
        return sum(map(len, self.partitions.values()))


class BatchReader(Generic[K, V]):
    def __init__(self, parts: Parts) -> None:
        parts.disable_auto_commit()
        self._parts = parts
        self._is_stopped = False

    def stop(self) -> None:
        """`next` gives no more batches, also one that waits."""
        self._is_stopped = True
        self._parts.wakeup.wake()

    async def next(self, most: int) -> Batch[K, V] | None:
        """The next batch, as soon as there is one; None after `stop`, and when the consumer was closed."""
        record_queue = self._parts.record_queue
        found: dict[TopicPartition, list[Message[K, V]]] = {}

        def take() -> bool | None:
            if not self._is_stopped:
                found.update(record_queue.messages(most, None))
            return True if found or self._is_stopped else None

        try:
            await self._parts.polling.poll(take, None)
        except Closed:
            return None
        if not found:
            return None
        return Batch(found, positions(self._parts.readings), dict(record_queue.unfinished))

    def rewind(self, batch: Batch[K, V]) -> None:
        """Reads it again, but for partitions that were given away meanwhile: those have a Reading of their own."""
        readings = self._parts.readings
        for reading, offset in batch.starts.items():
            if readings.get(reading.partition) is reading:
                self._parts.seek(reading, OffsetAndMetadata(offset))

    async def commit(self, batch: Batch[K, V]) -> None:
        await self._parts.commit(batch.offsets)

    def note_committed(self, batch: Batch[K, V]) -> None:
        """Its offsets were committed in a transaction."""
        note_committed(self._parts.readings, batch.offsets)

    def identity(self) -> GroupIdentity:
        return self._parts.identity()
