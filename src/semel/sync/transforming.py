"""`semel.transform` for programs without asyncio."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic

from semel.client import transform as asynchronous
from semel.client.consumer.batches import Batch
from semel.client.transform import Guarantee
from semel.client.values import K, V
from semel.sync.consumer import Consumer
from semel.sync.producer import Producer


def transform(
    consumer: Consumer[K, V],
    producer: Producer[Any, Any] | None,
    guarantee: Guarantee = "exactly_once",
    *,
    max_records: int | None = None,
    max_attempts: int = 10,
) -> Transform[K, V]:
    """Batches of messages for a `for` whose body sends what it makes of them with `producer`; see `semel.transform`."""
    return Transform(consumer, producer, guarantee, max_records, max_attempts)


class Transform(Iterator[Batch[K, V]], Generic[K, V]):
    def __init__(
        self,
        consumer: Consumer[K, V],
        producer: Producer[Any, Any] | None,
        guarantee: Guarantee,
        max_records: int | None,
        max_attempts: int,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._core = asynchronous.transform(
            consumer._core,
            None if producer is None else producer._core,
            guarantee,
            max_records=max_records,
            max_attempts=max_attempts,
        )

    @property
    def attempt(self) -> int:
        """Which try of the same batch this is: 1 is the first."""
        return self._core.attempt

    def stop(self) -> None:
        """Ends the loop: the batch in hand is finished first. Any thread may call it, and a signal handler."""
        self._consumer._call_soon(self._core.stop)

    def __iter__(self) -> Transform[K, V]:
        self._core.__aiter__()
        return self

    def __next__(self) -> Batch[K, V]:
        # What the body has handed to the producer is taken before its batch is finished.
        face = self._consumer if self._producer is None else self._producer
        batch = face._run(self._step())
        if batch is None:
            raise StopIteration
        return batch

    async def _step(self) -> Batch[K, V] | None:
        try:
            return await self._core.__anext__()
        except StopAsyncIteration:  # must not leave a coroutine
            return None
