"""The consumer as programs use it. What it does is done elsewhere: here the calls are checked and passed on.

    async with semel.Consumer("orders", group_id="billing", bootstrap_servers="localhost:9092") as consumer:
        async for message in consumer:
            ...

A consumer serves one task at a time. Names follow aiokafka, settings are Kafka's.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, Unpack

from semel.client.consumer.batches import BatchReader
from semel.client.consumer.columns import ColumnReader
from semel.client.consumer.parts import Parts
from semel.client.consumer.positions import Reading
from semel.client.consumer.record_queue import Only
from semel.client.consumer.reset_policy import EARLIEST, LATEST
from semel.client.consumer.settings import ConsumerSettings
from semel.client.consumer.subscription import Mode
from semel.client.counts import ConsumerCounts
from semel.client.errors import Closed, IllegalState, SemelError
from semel.client.metadata import TopicPartition
from semel.client.serialization import Deserializer
from semel.client.settings import load
from semel.client.values import GroupIdentity, K, Message, OffsetAndMetadata, OffsetAndTimestamp, V
from semel.host.api import Host
from semel.metrics import client_metrics
from semel.metrics.client_metrics import times_document
from semel.metrics.counts_kernel import Times
from semel.metrics.declaration import Metric

if TYPE_CHECKING:
    import pyarrow as pa

    from semel.client.option_types import ConsumerOptions

logger = logging.getLogger("semel.client")

Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]
OnCommit: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata], SemelError | None], object]
CLOSE_TIMEOUT_S = 30.0


class Consumer(Generic[K, V]):
    """The types of keys and values are those that the deserializers give; bytes without them."""

    def __init__(
        self,
        *topics: str | Iterable[str],
        key_deserializer: Callable[[bytes], K] | Deserializer[K] | None = None,
        value_deserializer: Callable[[bytes], V] | Deserializer[V] | None = None,
        host: Host | None = None,
        listener: Any = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        """Subscribes to the topics, if any are given, one by one or as a list. Nothing is asked of a broker before
        `start`."""
        deserializers = {"key_deserializer": key_deserializer, "value_deserializer": value_deserializer}
        self.settings = load(ConsumerSettings, {**settings, **deserializers})
        self._parts = Parts(self.settings, host)
        self._messages: Iterator[Message[K, V]] = iter(())
        self._generator: Any = None
        self._listener = listener
        if topics:
            names = [name for one in topics for name in ([one] if isinstance(one, str) else one)]
            self._parts.subscribe(names, None, listener)

    # -- life

    async def start(self) -> Self:
        """Finds the cluster. Raises Disconnected if nobody answers."""
        await self._parts.start()
        return self

    async def close(self, timeout_s: float | None = None) -> None:
        """Commits what was handed out, if auto-commit is on, leaves the group, and gives everything back.

        Takes no longer than `timeout_s` (30 s without): what is not done by then is left.
        """
        await self._close(CLOSE_TIMEOUT_S if timeout_s is None else timeout_s)

    stop = close

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error, what was handed out last does not count as done: auto-commit leaves it to the next reader."""
        await self._close(CLOSE_TIMEOUT_S, leave_unfinished=error is not None)

    async def _close(self, timeout_s: float, *, leave_unfinished: bool = False) -> None:
        try:
            await self._parts.close(timeout_s, leave_unfinished=leave_unfinished)
        finally:
            if self._generator is not None and not self._generator.ag_running:
                await self._generator.aclose()

    # -- what is read

    def subscribe(
        self, topics: Iterable[str] = (), pattern: str | re.Pattern[str] | None = None, listener: Any = None
    ) -> None:
        """Topics to share with the group, in place of those before. Without a group_id, all their partitions are read.

        A pattern is matched against whole names: by the broker (RE2) if it is a text and group_protocol is consumer,
        else here. The listener, else the constructor's, has `on_partitions_revoked(partitions)`,
        `on_partitions_assigned`, and if it likes `on_partitions_lost`, plain or async; they are called inside of a
        poll. Partitions that appear later are read as `auto_offset_reset` says, like all others.
        """
        self._parts.subscribe(topics, pattern, self._listener if listener is None else listener)

    async def unsubscribe(self) -> None:
        """Leaves the group, or gives up what was assigned by hand: then nothing is read."""
        await self._parts.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions to read, without sharing them, in place of those before. A group_id is used for offsets only."""
        self._parts.assign(TopicPartition(*partition) for partition in partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._parts.readings.partitions

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern, those that match it as far as is known here."""
        return self._parts.subscription.names

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of them until `resume`, without giving them up."""
        for reading in self._readings(partitions):
            reading.settle_decoded()
            reading.paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for reading in self._readings(partitions):
            reading.paused = False
            self._parts.readings.enqueue(reading)
        self._parts.fetcher.kick()
        self._parts.wakeup.wake()

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(reading.partition for reading in self._parts.readings if reading.paused)

    # -- reading

    def __aiter__(self) -> AsyncGenerator[Message[K, V], None]:
        """Messages, without end: until `close`. The one in the program's hands counts as done when it asks again.

        A loop that was left can be begun again: it goes on behind the last message.
        """
        if self._generator is None or self._generator.ag_frame is None:
            self._generator = self._one_by_one()
        generator: AsyncGenerator[Message[K, V], None] = self._generator
        return generator

    async def _one_by_one(self) -> AsyncGenerator[Message[K, V], None]:
        polling = self._parts.polling
        try:
            while True:
                # Left for a poll when something is to be seen to; what is left of the messages comes after it.
                for message in await self._more_messages(None):
                    yield message
                    if polling.needs_attention:
                        break
        except Closed:
            return

    async def getone(self, *partitions: TopicPartition) -> Message[K, V]:
        """The next message, of any partition or of those given; waits for it."""
        if not partitions and not self._parts.polling.needs_attention:
            for message in self._messages:
                return message
        while True:
            for message in await self._more_messages(self._only(partitions)):
                return message

    async def _more_messages(self, only: Only) -> Iterator[Message[K, V]]:
        """Those of one batch. Whoever takes them one by one takes them of the same iterator."""
        record_queue, polling = self._parts.record_queue, self._parts.polling
        self._check_reading()
        found = await polling.poll(lambda: record_queue.one_by_one(only), None)
        if found is None:
            return iter(())
        self._messages = found[1].one_by_one()
        polling.arm()
        return self._messages

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Message[K, V]]]:
        """What is there now, or comes within the time; at most `max_records` (max_poll_records without).

        All that earlier calls gave counts as done.
        """
        most = self.settings.max_poll_records if max_records is None else max_records
        if most < 1:
            raise IllegalState(f"max_records={most}: at least 1 is needed")
        only = self._only(partitions)
        self._check_reading()
        record_queue = self._parts.record_queue
        return (
            await self._parts.polling.poll(lambda: record_queue.messages(most, only) or None, timeout_ms / 1000) or {}
        )

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Message[K, V]]]:
        """`getmany` by Kafka's name."""
        return await self.getmany(timeout_ms=timeout_ms, max_records=max_records)

    async def poll_columns(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        *,
        with_headers: bool = False,
        timestamp_unit: str = "ms",
    ) -> pa.Table:
        """As `getmany`, but an Arrow table: topic, partition, offset, timestamp, timestamp_type, key, value[, headers].

        Keys and values are bytes: deserializers are not called. Without `max_records` it is all that is held.
        """
        if max_records is not None and max_records < 1:
            raise IllegalState(f"max_records={max_records}: at least 1 is needed")
        self._check_reading()
        record_queue = self._parts.record_queue
        most = sys.maxsize if max_records is None else max_records
        reader = ColumnReader(
            with_headers=with_headers,
            timestamp_unit=timestamp_unit,
            max_decompressed_bytes=self.settings.max_decompressed_bytes,
        )

        def take() -> bool | None:
            record_queue.each(most, None, reader.take)
            return reader.has_rows or None

        await self._parts.polling.poll(take, timeout_ms / 1000)
        return reader.table()

    def batches(self) -> BatchReader[K, V]:
        """For `semel.transform`: batches that can be read again. Positions are no longer committed by themselves."""
        self._check_reading()
        self._parts.group()
        return BatchReader(self._parts)

    # -- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """The next record to be handed out of the partition is the one at `offset`, or the first behind it."""
        place = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if place.offset < 0:
            raise IllegalState(
                f"{partition}: offset {place.offset} is below 0; for the ends, seek_to_beginning and _end"
            )
        self._parts.seek(self._reading(partition), place)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Returns when the position is known. Without partitions: all that are assigned."""
        await self._seek_to(EARLIEST, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """As `seek_to_beginning`. With read_committed the end is the last stable offset."""
        await self._seek_to(LATEST, partitions)

    async def _seek_to(self, end: int, partitions: tuple[TopicPartition, ...]) -> None:
        readings = self._readings(partitions)
        self._parts.seek_to_end(readings, end)
        for reading in readings:
            await self._parts.position(reading)

    async def position(self, partition: TopicPartition) -> int:
        """The offset behind the last message that was handed out; where reading begins, if none was."""
        return await self._parts.position(self._reading(partition))

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the partition as of the last answer; None before the first."""
        return self._reading(partition).high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        return self._reading(partition).last_stable_offset

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end that this consumer may read to, as of the last answer."""
        reading = self._reading(partition)
        end = reading.last_stable_offset if self.settings.reads_committed else reading.high_watermark
        return None if end is None or not reading.has_position else max(end - reading.position, 0)

    # -- metrics

    def metrics(self) -> dict[str, Any]:
        """What was read, and how, since it was started; `lag_of_partitions` is by topic and partition."""
        parts = self._parts
        counts = parts.fetcher.counts if parts.is_started else ConsumerCounts()
        lags = self._lags()
        return {
            "records_read": parts.record_queue.records if parts.is_started else 0,
            "bytes_fetched": counts.size_bytes,
            "fetches_failed": counts.failed_fetches,
            **times_document("fetch", counts.fetch_times),
            "assigned_partitions": len(self.assignment()),
            "lag": sum(lags.values()),
            "lag_of_partitions": lags,
        }

    def samples(self) -> dict[Metric, list[tuple[tuple[str, ...], float | Times]]]:
        """The same for `semel.client.prometheus`."""
        parts = self._parts
        if not parts.is_started:
            return {}
        counts, client_id = parts.fetcher.counts, self.settings.client_id
        values: dict[Metric, float | Times] = {
            client_metrics.RECORDS_READ: parts.record_queue.records,
            client_metrics.BYTES_FETCHED: counts.size_bytes,
            client_metrics.FETCHES_FAILED: counts.failed_fetches,
            client_metrics.FETCH_TIME: counts.fetch_times,
        }
        found: dict[Metric, list[tuple[tuple[str, ...], float | Times]]] = {
            metric: [((client_id,), value)] for metric, value in values.items()
        }
        lags = self._lags().items()
        found[client_metrics.LAG] = [((client_id, topic, str(index)), lag) for (topic, index), lag in lags]
        return found

    def _lags(self) -> dict[TopicPartition, int]:
        """Of the partitions whose end and position are known."""
        lags = {partition: self.lag(partition) for partition in self.assignment()}
        return {partition: lag for partition, lag in lags.items() if lag is not None}

    # -- commits

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commits positions, or the offsets given; returns when they are committed. The offset is that of the next
        record to read. Raises CommitFailed if the partitions are somebody else's by now."""
        await self._parts.commit(self._offsets(offsets))

    def commit_async(self, offsets: Offsets | None = None, on_complete: OnCommit | None = None) -> None:
        """As `commit`, in the background and in order; `on_complete(offsets, error or None)` is told of the outcome."""
        self._parts.commit_soon(self._offsets(offsets), on_complete)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset. Waits while a transaction may still change it."""
        found = await self.committed_with_metadata(partition)
        return None if found is None else found.offset

    async def committed_with_metadata(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        partition = TopicPartition(*partition)
        found = await self._parts.group().committed([partition], self.settings.api_timeout_s)
        return found.get(partition)

    def group_metadata(self) -> GroupIdentity:
        """For `Producer.send_offsets_to_transaction`: who reads, so that nobody else commits in its name."""
        self._parts.group()
        return self._parts.identity()._replace(auto_commits=self._parts.auto_commits)

    def _offsets(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        self._parts.group()
        if offsets is None:
            return self._parts.handed_out()
        found = {
            TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        for partition, place in found.items():
            if place.offset < 0:
                raise IllegalState(f"{partition}: offset {place.offset} cannot be committed")
        return found

    # -- the cluster

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._parts.offset_lookups.beginnings(partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record; with read_committed, the last stable offset."""
        return await self._parts.offset_lookups.endings(partitions)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record with that timestamp or a later one; None where there is none."""
        return await self._parts.offset_lookups.by_time(timestamps_ms)

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """None if there is no such topic."""
        return await self._parts.offset_lookups.partitions_of(topic)

    async def topics(self) -> set[str]:
        """All topics that this client may see."""
        return await self._parts.offset_lookups.topics()

    # -- checks

    def _check_reading(self) -> None:
        if self._parts.polling.is_closed:
            raise Closed("the consumer was closed")
        if not self._parts.is_started:
            raise IllegalState("the consumer was not started: use `async with`, or await start()")
        if self._parts.subscription.mode is Mode.NOTHING:
            raise IllegalState("there is nothing to read: call subscribe or assign first")

    def _reading(self, partition: TopicPartition) -> Reading:
        reading = self._parts.readings.get(TopicPartition(*partition))
        if reading is None:
            raise IllegalState(f"{TopicPartition(*partition)} is not assigned to this consumer")
        return reading

    def _readings(self, partitions: tuple[TopicPartition, ...]) -> list[Reading]:
        return [self._reading(one) for one in partitions] if partitions else list(self._parts.readings)

    def _only(self, partitions: tuple[TopicPartition, ...]) -> Only:
        return frozenset(self._reading(one).partition for one in partitions) if partitions else None
