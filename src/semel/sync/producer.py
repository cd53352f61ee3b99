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
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from semel.client.errors import AbortTransactionError, Closed, SemelError, TimedOut, UnknownTopic
from semel.client.metadata import TopicPartition
from semel.client.producer import producer as asynchronous
from semel.client.producer.batch import Delivery as CoreDelivery
from semel.client.producer.columns import Columns, Written
from semel.client.producer.producer import K_contra, V_contra
from semel.client.producer.record_input import Record, check_partition
from semel.client.producer.unseen import Unseen, UnseenFailures, raise_or_note
from semel.client.serialization import NotReady, Serializer
from semel.client.values import GroupIdentity, Headers, OffsetAndMetadata, RecordMetadata
from semel.sync.loop_thread import BlockingClient, blocking, direct

if TYPE_CHECKING:
    from semel.client.option_types import ProducerOptions

T = TypeVar("T")

logger = logging.getLogger("semel.producer")

_MOST_WAITING = 10_000
"""Records that were handed over but not taken yet; `send` waits while there are more."""


class _Waiter(threading.Event):
    """Threads that wait for the fate of a record."""

    count = 0


class Delivery:
    """The fate of one record, for another thread than the loop's."""

    __slots__ = ("_callback", "_outcome", "_unseen", "_waiter")

    def __init__(self, callback: Callable[[Delivery], object] | None) -> None:
        self._outcome: RecordMetadata | SemelError | None = None
        self._unseen: Unseen | None = None
        self._waiter: _Waiter | None = None
        self._callback = callback

    @classmethod
    def failed(cls, error: SemelError, callback: Callable[[Delivery], object] | None) -> Delivery:
        delivery = cls(callback)
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
        return outcome

    def exception(self, timeout_s: float | None = None) -> SemelError | None:
        outcome = self._wait(timeout_s)
        return outcome if isinstance(outcome, SemelError) else None

    def _wait(self, timeout_s: float | None) -> RecordMetadata | SemelError:
        if self._outcome is None:
            self._wait_for_outcome(timeout_s)
        if self._outcome is None:
            raise TimedOut(f"the record was not delivered within {timeout_s} s")
        if self._unseen is not None:
            with _waiters:
                unseen, self._unseen = self._unseen, None
            if unseen is not None:
                unseen.see()
        return self._outcome

    def _wait_for_outcome(self, timeout_s: float | None) -> None:
        with _waiters:
            if self._outcome is not None:
                return
            waiter = self._waiter = self._waiter or _Waiter()
            waiter.count += 1
        try:
            waiter.wait(timeout_s)
        finally:
            with _waiters:
                waiter.count -= 1

    def _finish(self, outcome: RecordMetadata | SemelError, failures: UnseenFailures) -> None:
        with _waiters:
            self._outcome = outcome
            waiter = self._waiter
            is_watched = self._callback is not None or (waiter is not None and waiter.count > 0)
            if isinstance(outcome, SemelError) and not is_watched:
                self._unseen = failures.add(outcome, 1)
        if waiter is not None:
            waiter.set()
        if self._callback is not None:
            try:
                self._callback(self)
            except Exception:
                logger.exception("a delivery callback failed")


_waiters = threading.Lock()


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
        delivery = Delivery(on_delivery)
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
        while True:
            while inbox:
                handed = inbox.popleft()
                topic, value, key, partition, record, delivery = handed
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
                core.add_done_callback(_Settle(delivery, unseen))
                if not self._has_room.is_set() and len(inbox) < _MOST_WAITING // 2:
                    self._has_room.set()
            self._has_room.set()
            self._is_pumping = False
            # A record may have come between the last look and the line above: then nobody else starts the pump.
            if not inbox:
                return
            self._is_pumping = True

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


class _Settle:
    """A delivery of the core settles one of ours."""

    __slots__ = ("_delivery", "_unseen")

    def __init__(self, delivery: Delivery, unseen: UnseenFailures) -> None:
        self._delivery = delivery
        self._unseen = unseen

    def __call__(self, core: CoreDelivery) -> None:
        self._delivery._finish(core.exception() or core.result(), self._unseen)


async def _left(block: Any, error: BaseException) -> None:
    """The block aborts and raises the same error again; here it is enough that it has aborted."""
    try:
        await block.__aexit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error:
            raise
