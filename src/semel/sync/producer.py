"""The blocking producer. `send` hands a record to the loop's thread without waiting for it: a crossing of threads per
record would cost more than everything else. What is wrong with the record itself is found before that, in the caller's
thread. Order is kept; every other call first lets through what was sent before."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import getpid
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from semel.client.errors import AbortTransactionError, Closed, SemelError, TimedOut, UnknownTopic
from semel.client.metadata import TopicPartition
from semel.client.producer import producer as asynchronous
from semel.client.producer.batch import Delivery as CoreDelivery
from semel.client.producer.batch import ProducerBatch
from semel.client.producer.columns import Columns, Written
from semel.client.producer.producer import K_contra, V_contra
from semel.client.producer.record_input import Record, check_partition
from semel.client.producer.unseen import Unseen, UnseenFailures, raise_or_note
from semel.client.serialization import NotReady, Serializer
from semel.client.values import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    GroupIdentity,
    Headers,
    OffsetAndMetadata,
    RecordMetadata,
)
from semel.sync.loop_thread import BlockingClient, blocking, direct

if TYPE_CHECKING:
    from semel.client.option_types import ProducerOptions

T = TypeVar("T")

logger = logging.getLogger("semel.producer")

_MOST_WAITING = 10_000
"""Records that were handed over but not taken yet; `send` waits while there are more."""


_lock = threading.Lock()
"""For what threads of the program and the loop's change in a Delivery."""


class _Watch:
    """What somebody wants of the fate of a record, or has to know of it; most records have none."""

    __slots__ = ("callback", "event", "unseen", "waiting")

    def __init__(self, callback: Callable[[Delivery], object] | None = None) -> None:
        self.callback = callback
        self.event: threading.Event | None = None
        self.waiting = 0
        self.unseen: Unseen | None = None


class _Written:
    """Where the records of one batch were written."""

    __slots__ = ("base_offset", "log_append_time_ms", "partition", "timestamps", "topic")

    def __init__(self, batch: ProducerBatch) -> None:
        self.topic = batch.topic
        self.partition = batch.partition
        self.base_offset = batch.base_offset
        self.log_append_time_ms = batch.log_append_time_ms
        self.timestamps = batch.timestamps

    def metadata(self, index: int) -> RecordMetadata:
        offset = self.base_offset if self.base_offset < 0 else self.base_offset + index
        if self.log_append_time_ms >= 0:
            return RecordMetadata(self.topic, self.partition, offset, self.log_append_time_ms, LOG_APPEND_TIME)
        return RecordMetadata(self.topic, self.partition, offset, self.timestamps[index], CREATE_TIME)


class Delivery:
    """The fate of one record, for another thread than the loop's."""

    __slots__ = ("_index", "_outcome", "_watch")

    def __init__(self) -> None:
        self._outcome: _Written | RecordMetadata | SemelError | None = None
        self._watch: _Watch | None = None
        self._index: int

    @classmethod
    def failed(cls, error: SemelError, callback: Callable[[Delivery], object] | None) -> Delivery:
        delivery = cls()
        delivery._outcome = error
        if callback is not None:
            callback(delivery)
        return delivery

    def done(self) -> bool:
        return self._outcome is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Waits; raises why the record was not delivered, or TimedOut."""
        outcome = self._wait(timeout_s)
        if isinstance(outcome, SemelError):
            raise outcome
        return outcome.metadata(self._index) if isinstance(outcome, _Written) else outcome

    def exception(self, timeout_s: float | None = None) -> SemelError | None:
        outcome = self._wait(timeout_s)
        return outcome if isinstance(outcome, SemelError) else None

    def _wait(self, timeout_s: float | None) -> _Written | RecordMetadata | SemelError:
        if self._outcome is None:
            self._wait_for_outcome(timeout_s)
        outcome, watch = self._outcome, self._watch
        if outcome is None:
            raise TimedOut(f"the record was not delivered within {timeout_s} s")
        if watch is not None and watch.unseen is not None:
            with _lock:
                unseen, watch.unseen = watch.unseen, None
            if unseen is not None:
                unseen.see()
        return outcome

    def _wait_for_outcome(self, timeout_s: float | None) -> None:
        with _lock:
            if self._outcome is not None:
                return
            watch = self._watch = self._watch or _Watch()
            event = watch.event = watch.event or threading.Event()
            watch.waiting += 1
        try:
            event.wait(timeout_s)
        finally:
            with _lock:
                watch.waiting -= 1

    # -- on the loop

    def _finish(self, outcome: RecordMetadata | SemelError, failures: UnseenFailures) -> None:
        with _lock:
            self._outcome = outcome
            watch = self._watch
            if isinstance(outcome, SemelError) and (watch is None or not (watch.callback or watch.waiting)):
                watch = self._watch = watch or _Watch()
                watch.unseen = failures.add(outcome, 1)
        if watch is not None:
            self._tell(watch)

    def _tell(self, watch: _Watch) -> None:
        if watch.event is not None:
            watch.event.set()
        if watch.callback is not None:
            try:
                watch.callback(self)
            except Exception:
                logger.exception("a delivery callback failed")


class Producer(BlockingClient[asynchronous.Producer[K_contra, V_contra]], Generic[K_contra, V_contra]):
    def __init__(
        self,
        *,
        key_serializer: Callable[[K_contra], bytes | None] | Serializer[K_contra] | None = None,
        value_serializer: Callable[[V_contra], bytes | None] | Serializer[V_contra] | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(
            lambda: asynchronous.Producer(key_serializer=key_serializer, value_serializer=value_serializer, **settings)
        )
        self._inbox: deque[tuple[Any, ...]] = deque()
        self._is_pumping = False
        self._pumping: asyncio.Task[None] | None = None
        self._has_room = threading.Event()
        self._has_room.set()

    def send(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery:
        """Takes a record for sending; raises BadRecord for one that no broker could take. What fails later is raised
        by `flush`, `commit` and `close`, unless its Delivery was asked or has a callback. `on_delivery` is called on
        the loop's thread: it must not block."""
        if not self._is_open or self._process_id != getpid():
            self._check()
        core = self._core
        record = None
        if headers is not None or timestamp_ms is not None or not core.is_ordinary(topic, value, key):
            try:
                record = self._judged(topic, value, key, partition, timestamp_ms, headers)
            except AbortTransactionError as error:
                if not core.will_repeat:
                    raise
                return Delivery.failed(error, on_delivery)
        if partition is not None:
            check_partition(partition)
        delivery = Delivery()
        if on_delivery is not None:
            delivery._watch = _Watch(on_delivery)
        self._inbox.append((topic, value, key, partition, record, delivery))
        if not self._is_pumping:
            self._is_pumping = True
            self._thread.loop.call_soon_threadsafe(self._start_pump)
        if len(self._inbox) > _MOST_WAITING:
            self._has_room.clear()
            if len(self._inbox) > _MOST_WAITING:
                self._has_room.wait()
        return delivery

    def _judged(self, *given: Any) -> Record:
        while True:
            try:
                return self._core.judge(*given)
            except NotReady as missing:
                missing.fetch()

    def _start_pump(self) -> None:
        self._pumping = self._thread.loop.create_task(self._pump())

    async def _pump(self) -> None:
        """On the loop: takes records in order. Ends when none is left; `send` starts it again."""
        inbox = self._inbox
        send, take, unseen = self._core.send, self._core.take, self._core.unseen
        append_now = self._core.append_now
        while True:
            while inbox:
                handed = inbox.popleft()
                topic, value, key, partition, record, delivery = handed
                if record is None and partition is None:
                    batch = append_now(topic, value, key)
                    if batch is not None and batch.deliveries is not None:
                        batch.deliveries.append(delivery)
                        continue
                    if batch is not None:
                        self._follow(CoreDelivery(batch, batch.count - 1), delivery)
                        continue
                try:
                    if record is None:
                        core = await send(topic, value, key, partition=partition)
                    else:
                        core = await take(record)
                except SemelError as error:
                    self._core.refuse(error)
                    delivery._finish(error, unseen)
                    if isinstance(error, UnknownTopic):
                        self._fail_waiting(error, topic)
                    continue
                except asyncio.CancelledError:
                    inbox.appendleft(handed)
                    raise
                self._follow(core, delivery)
                if not self._has_room.is_set() and len(inbox) < _MOST_WAITING // 2:
                    self._has_room.set()
            self._has_room.set()
            self._is_pumping = False
            # A record may have come between the last look and the line above: then nobody else starts the pump.
            if not inbox:
                return
            self._is_pumping = True

    def _follow(self, core: CoreDelivery, delivery: Delivery) -> None:
        """The first record of a batch makes the list of its deliveries; the others are added to it in their order."""
        batch, unseen = core._batch, self._core.unseen
        if batch.deliveries is None and core.index == 0:
            batch.deliveries = [delivery]
            batch.watch_all()  # who has seen what of it fail is known here
            batch.when_done(self._finish_batch, batch)
        elif batch.deliveries is not None and len(batch.deliveries) == core.index:
            batch.deliveries.append(delivery)
        else:
            core.add_done_callback(lambda core: delivery._finish(core.exception() or core.result(), unseen))

    def _finish_batch(self, batch: ProducerBatch) -> None:
        """A batch has ended: all of it was written, as nearly always, or each record has a fate of its own."""
        deliveries, batch.deliveries = batch.deliveries or [], None
        if batch.error is not None or batch.halves is not None:
            for index, delivery in enumerate(deliveries):
                delivery._finish(batch.look(index) or batch.metadata(index), self._core.unseen)
            return
        written = _Written(batch)
        watched = []
        with _lock:
            for index, delivery in enumerate(deliveries):
                delivery._index = index
                delivery._outcome = written
                if delivery._watch is not None:
                    watched.append(delivery)
        for delivery in watched:
            if delivery._watch is not None:
                delivery._tell(delivery._watch)

    def _fail_waiting(self, error: SemelError, topic: str | None = None) -> None:
        """Of what was handed over and not taken yet: the records for one topic, which was sought for as long as any of
        them may wait, or all."""
        inbox, kept = self._inbox, []
        for _ in range(len(inbox)):
            handed = inbox.popleft()
            if topic is None or handed[0] == topic:
                handed[-1]._finish(error, self._core.unseen)
            else:
                kept.append(handed)
        inbox.extendleft(reversed(kept))

    async def _caught_up(self) -> None:
        """Everything handed over before has been taken."""
        while self._inbox or self._is_pumping:
            if self._pumping is not None and not self._pumping.done():
                await asyncio.wait([self._pumping])
            else:  # it is about to be started
                await asyncio.sleep(0)

    async def _in_order(self, coroutine: Coroutine[Any, Any, T]) -> T:
        await self._caught_up()
        return await coroutine

    def close(self, timeout_s: float | None = None) -> None:
        """Delivers what was sent, aborts a transaction that is open, and ends. Then raises the first failure that the
        program has not seen; an exception that is being handled gets a note instead."""
        raise_or_note(self._end(self._close, timeout_s), sys.exception())

    async def _close(self, timeout_s: float | None) -> SemelError | None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + (self._core.settings.delivery_timeout_s if timeout_s is None else timeout_s)
        try:
            async with asyncio.timeout_at(end_s):
                await self._caught_up()
        except TimeoutError:
            await self._give_up_inbox()
        return await self._core.end(max(0.0, end_s - loop.time()))

    async def _give_up_inbox(self) -> None:
        if self._pumping is not None:
            self._pumping.cancel()
            await asyncio.wait([self._pumping])
        error = Closed("the producer was closed before the record was sent")
        self._core.refuse(error)
        self._fail_waiting(error)
        self._is_pumping = False
        self._has_room.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise_or_note(self._end(self._close, None), error)

    metrics = direct(asynchronous.Producer.metrics)
    samples = direct(asynchronous.Producer.samples)

    def send_and_wait(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Sends one record and returns where it was written."""
        delivery = self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return delivery.result()

    def send_columns(self, topic: str, columns: Columns) -> list[Written]:
        """Sends Arrow columns and waits until every row is written."""

        async def send() -> list[Written]:
            return await (await self._core.send_columns(topic, columns))

        return self._run(send())

    def send_batches(self, batches: Iterable[tuple[str, int, bytearray]]) -> list[Written]:
        """Sends record batches that were encoded elsewhere, each with its topic and partition, and waits for all."""

        async def send() -> list[Written]:
            deliveries = [await self._core.send_batch(*batch) for batch in batches]
            return [written for delivery in deliveries for written in await delivery]

        return self._run(send())

    flush = blocking(asynchronous.Producer.flush)
    partitions_for = blocking(asynchronous.Producer.partitions_for)
    init_transactions = blocking(asynchronous.Producer.init_transactions)
    begin = begin_transaction = blocking(asynchronous.Producer.begin)
    commit = commit_transaction = blocking(asynchronous.Producer.commit)
    abort = abort_transaction = blocking(asynchronous.Producer.abort)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: str | GroupIdentity
    ) -> None:
        self._run(self._core.send_offsets_to_transaction(offsets, group))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commits at the end of the block, aborts when an exception leaves it."""
        block = self._core.transaction()
        self._run(block.__aenter__())
        try:
            yield self
        except BaseException as error:
            self._run(_left(block, error))
            raise
        else:
            self._run(block.__aexit__(None, None, None))


async def _left(block: Any, error: BaseException) -> None:
    """The block aborts and raises the same error again; here it is enough that it has aborted."""
    try:
        await block.__aexit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error:
            raise
