"""Consume, transform, produce, in one loop. One word says what a crash does to a record:

    async for batch in semel.transform(consumer, producer, "exactly_once"):
        for message in batch:
            await producer.send("invoices", invoice(message.value), key=message.key)

The batch counts as done when the loop asks for the next one.

| word          | order                                    | after a failure                                 |
| exactly_once  | records and offsets in one transaction   | it is aborted, and the batch is read again      |
| at_least_once | records delivered, then offsets          | the batch is read again                         |
| at_most_once  | offsets, then the batch is handed out    | the batch is not read again                     |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, get_args

from semel.client.consumer.batches import Batch, BatchReader
from semel.client.errors import (
    BadRecord,
    BadSetting,
    CommitFailed,
    FatalError,
    IllegalState,
    RestartProducerError,
    RetriableError,
    SemelError,
)
from semel.client.producer.transactions import State
from semel.client.values import K, V

if TYPE_CHECKING:
    from semel.client.consumer.consumer import Consumer
    from semel.client.producer.producer import Producer

logger = logging.getLogger("semel.client")

Guarantee: TypeAlias = Literal["exactly_once", "at_least_once", "at_most_once"]

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_LASTING = (BadRecord, FatalError, RestartProducerError)
"""What happens again when the batch is done again."""


def transform(
    consumer: Consumer[K, V],
    producer: Producer[Any, Any] | None,
    guarantee: Guarantee = "exactly_once",
    *,
    max_records: int | None = None,
    max_attempts: int = 10,
) -> Transform[K, V]:
    """Batches of messages for an `async for` whose body sends what it makes of them with `producer`.

    A batch is done when the loop asks for the next. `max_records` bounds it (max_poll_records without). A batch that
    fails is read again; after `max_attempts` in a row the error is raised. Errors in the body leave the loop, and the
    batch is not done: a loop that is begun again on the same Transform repeats it.
    """
    if guarantee not in get_args(Guarantee):
        raise BadSetting(f"guarantee={guarantee!r} is not allowed; allowed: {', '.join(get_args(Guarantee))}")
    if max_attempts < 1 or (max_records is not None and max_records < 1):
        raise BadSetting(f"max_attempts={max_attempts}, max_records={max_records}: at least 1 is needed")
    _check_consumer(consumer, guarantee)
    _check_producer(producer, guarantee)
    most = consumer.settings.max_poll_records if max_records is None else max_records
    return Transform(consumer, producer, guarantee, most, max_attempts)


def _check_consumer(consumer: Consumer[Any, Any], guarantee: Guarantee) -> None:
    settings = consumer.settings
    if settings.group_id is None:
        raise BadSetting("transform needs a consumer with a group_id: its progress is the group's offsets")
    if settings.enable_auto_commit:
        raise BadSetting("enable_auto_commit=True contradicts transform, which commits by itself: leave it out")
    if guarantee == "exactly_once" and not settings.reads_committed:
        raise BadSetting(
            "isolation_level='read_uncommitted' contradicts exactly_once: records of aborted transactions would be "
            "read; set isolation_level='read_committed'"
        )


def _check_producer(producer: Producer[Any, Any] | None, guarantee: Guarantee) -> None:
    transactional_id = None if producer is None else producer.settings.transactional_id
    if guarantee == "exactly_once" and transactional_id is None:
        raise BadSetting("exactly_once needs a producer with a transactional_id")
    if guarantee != "exactly_once" and transactional_id is not None:
        raise BadSetting(f"transactional_id={transactional_id!r} contradicts {guarantee}: leave it out")


class Transform(AsyncIterator[Batch[K, V]], Generic[K, V]):
    """See `transform`. For one task at a time."""

    def __init__(
        self,
        consumer: Consumer[K, V],
        producer: Producer[Any, Any] | None,
        guarantee: Guarantee,
        most: int,
        max_attempts: int,
    ) -> None:
        self.attempt = 0
        """Which try of the same batch this is: 1 is the first."""
        self._consumer = consumer
        self._most = most
        self._max_attempts = max_attempts
        self._guarantee = guarantee
        self._producer = producer
        self._steps: _Steps[K, V] | None = None
        self._reader: BatchReader[K, V] | None = None
        self._held: Batch[K, V] | None = None
        self._was_left = False
        self._is_stopped = False
        self._is_running = False

    def stop(self) -> None:
        """Ends the loop: the batch in hand is finished first, and a loop that waits for a batch ends at once."""
        self._is_stopped = True
        if self._reader is not None:
            self._reader.stop()

    def __aiter__(self) -> Transform[K, V]:
        """A loop that was left in its body, by an error or a break, has not finished its batch."""
        self._was_left = self._held is not None
        return self

    async def __anext__(self) -> Batch[K, V]:
        if self._is_running:
            raise IllegalState("transform serves one task at a time")
        self._is_running = True
        try:
            batch = await self._next()
        finally:
            self._is_running = False
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def _next(self) -> Batch[K, V] | None:
        steps = await self._started()
        if self._held is not None:
            await self._finish(steps, self._held)
        while not self._is_stopped:
            batch = await steps.reader.next(self._most)
            if batch is None:
                return None
            self.attempt += 1
            problem = await steps.begin(batch)
            if problem is None:
                self._held = batch
                return batch
            await self._repeat(steps, batch, problem)
        return None

    async def _started(self) -> _Steps[K, V]:
        if self._steps is None:
            self._reader = self._consumer.batches()
            if self._is_stopped:
                self._reader.stop()
            steps = self._steps_of(self._reader)
            await steps.start()
            self._steps = steps
        return self._steps

    def _steps_of(self, reader: BatchReader[K, V]) -> _Steps[K, V]:
        if self._guarantee == "at_most_once":
            return _AtMostOnce(reader)
        if self._guarantee == "at_least_once" or self._producer is None:
            return _AtLeastOnce(reader, self._producer)
        return _ExactlyOnce(reader, self._producer)

    async def _finish(self, steps: _Steps[K, V], batch: Batch[K, V]) -> None:
        """The batch is done, or is read again. If this raises before either, the batch is still held."""
        if self._was_left:
            if not await steps.undo():
                steps.reader.rewind(batch)
            self._was_left = False
            self._held = None
            return
        problem = await steps.finish(batch)
        if problem is not None and await steps.undo():
            problem = None
        self._held = None
        if problem is None:
            self.attempt = 0
        else:
            await self._repeat(steps, batch, problem)

    async def _repeat(self, steps: _Steps[K, V], batch: Batch[K, V], problem: SemelError) -> None:
        steps.reader.rewind(batch)
        if isinstance(problem, _LASTING) or self.attempt >= self._max_attempts:
            raise problem
        logger.warning("a batch of %d records is read again: %s", len(batch), problem)
        await asyncio.sleep(min(_FIRST_PAUSE_S * 2 ** (self.attempt - 1), _LONGEST_PAUSE_S))


class _Steps(Generic[K, V]):
    """What is done before and after a batch. A step that returns an error asks for the batch to be done again."""

    def __init__(self, reader: BatchReader[K, V]) -> None:
        self.reader = reader

    async def start(self) -> None:
        """Before anything is read."""

    async def begin(self, batch: Batch[K, V]) -> SemelError | None:
        return None

    async def finish(self, batch: Batch[K, V]) -> SemelError | None:
        return None

    async def undo(self) -> bool:
        """Takes back what the batch has done so far. True if it counts as done, and must not be done again."""
        return False


class _ExactlyOnce(_Steps[K, V]):
    def __init__(self, reader: BatchReader[K, V], producer: Producer[Any, Any]) -> None:
        super().__init__(reader)
        self._producer = producer

    async def start(self) -> None:
        """A copy that died in a transaction holds back the offsets that are read first, until it is ended."""
        producer = self._producer
        if producer.transaction_state is State.UNINITIALISED:
            await producer.init_transactions()
        else:
            await self.undo()
        producer.repeats_transactions = True

    async def begin(self, batch: Batch[K, V]) -> SemelError | None:
        await self._producer.begin()
        return None

    async def finish(self, batch: Batch[K, V]) -> SemelError | None:
        producer = self._producer
        try:
            # Also with no offsets to commit: it checks that this is still a member, so that nobody else has the batch.
            await producer.send_offsets_to_transaction(batch.offsets, self.reader.identity())
            await producer.commit_until_known()
        except SemelError as error:
            if producer.transaction_state is State.BROKEN:
                raise
            return error
        self.reader.note_committed(batch)
        return None

    async def undo(self) -> bool:
        producer = self._producer
        if producer.transaction_state is State.COMMITTING:  # a commit was begun, and its outcome is not known
            await producer.commit_until_known()
            return True
        failures = 0
        while producer.transaction_state in (State.OPEN, State.FAILED, State.ABORTING):
            try:
                await producer.abort()
            except RetriableError as error:
                logger.warning("a transaction is not aborted yet: %s", error)
                await asyncio.sleep(min(_FIRST_PAUSE_S * 2**failures, _LONGEST_PAUSE_S))
                failures += 1
        return False


class _AtLeastOnce(_Steps[K, V]):
    def __init__(self, reader: BatchReader[K, V], producer: Producer[Any, Any] | None) -> None:
        super().__init__(reader)
        self._producer = producer

    async def finish(self, batch: Batch[K, V]) -> SemelError | None:
        if self._producer is not None:
            try:
                await self._producer.flush()
            except SemelError as error:
                return error
        try:
            await self.reader.commit(batch)
        except (CommitFailed, RetriableError) as error:
            # The next commit includes these offsets, unless others have the partitions by then: they read it again.
            logger.warning("the offsets of a batch that is done were not committed: %s", error)
        return None


class _AtMostOnce(_Steps[K, V]):
    async def begin(self, batch: Batch[K, V]) -> SemelError | None:
        """Nobody has seen the batch yet, so it may be read again if its commit has failed, or may have failed."""
        try:
            await self.reader.commit(batch)
        except (CommitFailed, RetriableError) as error:
            return error
        return None

    async def undo(self) -> bool:
        return True
