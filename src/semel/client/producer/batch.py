"""Records of one partition on their way: gathered, then sealed into bytes, then written or failed; and what a program
holds of each record meanwhile.

A record costs no future: its Delivery knows the batch and its place in it, and one future serves all who wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from semel.client.errors import SemelError
from semel.client.producer.unseen import Unseen, UnseenFailures
from semel.client.values import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata
from semel.records import kernel
from semel.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, set_producer
from semel.records.build import seal_batch
from semel.records.sequences import NO_SEQUENCE, next_sequence

logger = logging.getLogger("semel.producer")

RECORD_OVERHEAD_BYTES = 11
"""What a record of ordinary size needs beside key, value and headers; large ones take up to ten bytes more."""

NO_OFFSET = -1
_NO_HEADERS = kernel.encode_headers(())


class Identity(NamedTuple):
    """Who wrote a batch. Together with its sequence it names the batch for ever."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)
_NONE_SEEN: set[int] = set()
"""Shared by all batches and never changed: a set of its own has only a batch that somebody looks at."""


class RecordErrors(NamedTuple):
    """Why a batch was refused, record by record: those that the broker named by their place, and all others."""

    named: dict[int, SemelError]
    others: SemelError

    def of(self, index: int) -> SemelError:
        return self.named.get(index, self.others)


class ProducerBatch:
    """`size_bytes` is what it counts against `buffer.memory`."""

    __slots__ = (
        "attempts",
        "awaited",
        "base_offset",
        "base_sequence",
        "callbacks",
        "count",
        "created_s",
        "deliveries",
        "done",
        "error",
        "halves",
        "headers",
        "identity",
        "in_doubt",
        "is_full",
        "is_sealed",
        "is_watched",
        "keys",
        "log_append_time_ms",
        "partition",
        "payload",
        "record_errors",
        "room_bytes",
        "seen",
        "size_bytes",
        "timestamps",
        "topic",
        "unseen",
        "unseen_failures",
        "values",
        "waiting",
    )

    def __init__(self, topic: str, partition: int, created_s: float, room_bytes: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.created_s = created_s
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: list[bytes] | None = None
        self.count = 0
        self.size_bytes = HEADER_BYTES
        self.room_bytes = room_bytes - HEADER_BYTES  # what more it takes; none once it is closed
        self.is_full = False
        self.payload: bytearray | None = None
        self.is_sealed = False  # the payload bears the batch's name
        self.identity = NOBODY
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.in_doubt = False  # an attempt was not answered: it may have been written, or may still be
        self.done = False
        self.error: SemelError | None = None
        self.record_errors: RecordErrors | None = None  # beside `error`, if the broker said which records are to blame
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = -1
        self.halves: tuple[ProducerBatch, ProducerBatch] | None = None
        self.waiting: asyncio.Future[None] | None = None
        self.awaited: Callable[[], None] | None = None  # called when somebody begins to wait
        self.callbacks: list[tuple[Callable[[Any], object], Any]] | None = None
        self.unseen_failures: UnseenFailures | None = None  # told of records that fail while nobody looks
        self.unseen: Unseen | None = None  # as what they were counted there
        self.seen: set[int] = _NONE_SEEN  # records that somebody waits for, or has seen fail
        self.is_watched = False  # somebody waits for all of it
        self.deliveries: list[Any] | None = None  # what the blocking producer has given for each record

    def __repr__(self) -> str:
        return f"{self.count} records for {self.topic}-{self.partition} from sequence {self.base_sequence}"

    @classmethod
    def sealed(cls, topic: str, partition: int, created_s: float, payload: bytearray, count: int) -> ProducerBatch:
        """A batch whose bytes were made elsewhere, of columns."""
        batch = cls(topic, partition, created_s)
        batch.payload = payload
        batch.count = count
        batch.size_bytes = len(payload)
        batch.close()
        return batch

    # -- gathering

    def append(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: bytes | None, size: int
    ) -> None:
        """`headers` are encoded."""
        if headers is not None or self.headers is not None:
            if self.headers is None:
                self.headers = [_NO_HEADERS] * self.count
            self.headers.append(_NO_HEADERS if headers is None else headers)
        self.values.append(value)
        self.keys.append(key)
        self.timestamps.append(timestamp_ms)
        self.count += 1
        self.size_bytes += size
        # The quick way of `Producer.send` knows no headers: a batch that has some looks full to it.
        self.room_bytes = 0 if self.headers is not None else self.room_bytes - size

    def close(self) -> None:
        """It takes no more records."""
        self.is_full = True
        self.room_bytes = 0

    # -- sealing

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        return next_sequence(self.base_sequence, self.count)

    def seal(self, *, transactional: bool, codec: int, level: int | None) -> bytearray:
        """Makes the bytes, under the name the batch has. They are made once, and patched if the name is a new one."""
        self.close()
        self.is_sealed = True
        if self.payload is not None:
            set_producer(self.payload, *self.identity, self.base_sequence, transactional=transactional)
            return self.payload
        base_timestamp = self.timestamps[0]
        records, max_timestamp = kernel.encode_records(
            self.values, self.keys, self.headers, self.timestamps, base_timestamp, HEADER_BYTES
        )
        self.payload = seal_batch(
            records,
            base_offset=0,
            leader_epoch=-1,
            attributes=codec | (TRANSACTIONAL_BIT if transactional else 0),
            level=level,
            last_offset_delta=self.count - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.base_sequence,
            record_count=self.count,
        )
        return self.payload

    def forget_name(self) -> None:
        """The broker has certainly not written it, and never will under this name."""
        self.identity = NOBODY
        self.base_sequence = NO_SEQUENCE
        self.in_doubt = False
        self.is_sealed = False

    @property
    def can_split(self) -> bool:
        return self.count > 1 and len(self.values) == self.count

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Two halves for a batch that the broker found too large. They share its sequences; whoever waits for the whole
        waits for both."""
        middle = self.count // 2
        self.halves = first, second = self._part(0, middle), self._part(middle, self.count)
        first.size_bytes = self.size_bytes // 2
        second.size_bytes = self.size_bytes - first.size_bytes
        for half in self.halves:
            half.when_done(self._half_done, None)
        return self.halves

    def _part(self, start: int, end: int) -> ProducerBatch:
        part = ProducerBatch(self.topic, self.partition, self.created_s)
        part.values, part.keys = self.values[start:end], self.keys[start:end]
        part.timestamps = self.timestamps[start:end]
        part.headers = None if self.headers is None else self.headers[start:end]
        part.count = end - start
        part.close()
        if self.has_sequence:
            part.identity = self.identity
            part.base_sequence = next_sequence(self.base_sequence, start)
            part.in_doubt = self.in_doubt
        return part

    def _half_done(self, _: None) -> None:
        if self.halves is not None and all(half.done for half in self.halves):
            self._end(None)

    # -- ending

    def finish(self, error: SemelError | None) -> None:
        """Written, or failed. Once only: a later answer changes nothing."""
        if self.done:
            return
        if error is not None:
            logger.debug("%d records for %s-%d were not delivered: %s", self.count, self.topic, self.partition, error)
        self._end(error)

    def _end(self, error: SemelError | None) -> None:
        self.close()
        self.done = True
        self.error = error
        if error is not None or self.halves is not None:
            self._count_unseen()
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)
        callbacks, self.callbacks = self.callbacks, None
        for callback, argument in callbacks or ():
            try:
                callback(argument)
            except Exception:
                logger.exception("a delivery callback failed")

    def when_done(self, callback: Callable[[Any], object], argument: Any) -> None:
        if self.done:
            callback(argument)
            return
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((callback, argument))

    async def wait(self) -> None:
        if not self.done:
            if self.waiting is None:
                self.waiting = asyncio.get_running_loop().create_future()
                if self.awaited is not None:
                    self.awaited()
            await asyncio.shield(self.waiting)  # one who gives up does not give up for the others

    # -- who has seen it fail

    def watch(self, index: int) -> None:
        """Somebody waits for this record, and will see how it ends."""
        if self.seen is _NONE_SEEN:
            self.seen = set()
        self.seen.add(index)

    def unwatch(self, index: int) -> None:
        """Whoever waited for it has given up."""
        self.seen.discard(index)
        if self.done and self.unseen_failures is not None:
            part, place = self._part_with(index)
            error = part.error_at(place)
            if error is not None:
                part.unseen = self.unseen_failures.add(error, 1)

    def watch_all(self) -> None:
        self.is_watched = True

    def unwatch_all(self) -> None:
        self.is_watched = False
        if self.done and self.unseen is None:
            self._count_unseen()

    def look(self, index: int) -> SemelError | None:
        """Why a record failed, for a program that asks and so sees it; None if it did not."""
        part, place = self._part_with(index)
        if part.unseen is not None and index not in self.seen:
            self.watch(index)
            part.unseen.see()
        return part.error_at(place)

    def error_at(self, place: int) -> SemelError | None:
        """Of a batch that ended as one."""
        return self.error if self.record_errors is None else self.record_errors.of(place)

    def look_at_all(self) -> SemelError | None:
        self.unseen_failures = None  # nothing more is counted
        if self.unseen is not None:
            self.unseen.see(self.count)
            self.unseen = None
        return self.error

    def _count_unseen(self) -> None:
        failures = self.unseen_failures
        if failures is None or self.is_watched:
            return
        called = {argument.index for _, argument in self.callbacks or () if isinstance(argument, Delivery)}
        if called:
            self.seen = self.seen | called
        for start, part in self._parts(0):
            if part.error is not None:
                seen = sum(start <= index < start + part.count for index in self.seen)
                if seen < part.count:
                    named = part.record_errors.named if part.record_errors is not None else {}
                    error = next(iter(named.values()), part.error)  # says more than that of the batch
                    part.unseen = failures.add(error, part.count - seen)

    def _parts(self, start: int) -> Iterator[tuple[int, ProducerBatch]]:
        """What ends as one, and the index of its first record."""
        if self.halves is None:
            yield start, self
        else:
            first, second = self.halves
            yield from first._parts(start)
            yield from second._parts(start + first.count)

    def _part_with(self, index: int) -> tuple[ProducerBatch, int]:
        """The part that a record is in, and its index there."""
        if self.halves is None:
            return self, index
        first, second = self.halves
        return first._part_with(index) if index < first.count else second._part_with(index - first.count)

    # -- where it is

    def metadata(self, index: int) -> RecordMetadata:
        if self.halves is not None:
            part, index = self._part_with(index)
            return part.metadata(index)
        offset = self.base_offset if self.base_offset < 0 else self.base_offset + index
        if self.log_append_time_ms >= 0:
            return RecordMetadata(self.topic, self.partition, offset, self.log_append_time_ms, LOG_APPEND_TIME)
        timestamp_ms = self.timestamps[index] if index < len(self.timestamps) else -1
        return RecordMetadata(self.topic, self.partition, offset, timestamp_ms, CREATE_TIME)


class Delivery:
    """The fate of one record: `await` gives its RecordMetadata, or raises why it was not delivered."""

    __slots__ = ("_batch", "index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self.index = index

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        if not batch.done:
            batch.watch(self.index)
            try:
                yield from batch.wait().__await__()
            except BaseException:
                batch.unwatch(self.index)
                raise
        return self.result()

    def done(self) -> bool:
        return self._batch.done

    def exception(self) -> SemelError | None:
        """Why it failed; None if it did not. InvalidStateError while it is not decided."""
        if not self._batch.done:
            raise asyncio.InvalidStateError("the record is not delivered yet")
        return self._batch.look(self.index)

    def result(self) -> RecordMetadata:
        error = self.exception()
        if error is not None:
            raise error
        return self._batch.metadata(self.index)

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Called with this Delivery when it is decided, at once if it is already."""
        if self._batch.done:
            self._batch.look(self.index)
        self._batch.when_done(callback, self)
