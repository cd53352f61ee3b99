"""The producer's face: `send` gathers, the sender delivers, transactions bind.

async with semel.Producer(bootstrap_servers="localhost:9092") as producer:
    delivery = await producer.send("payments", b"10.00 EUR", key=b"42")
    print(await delivery)
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    from typing import TypeVar

from semel.client.cluster import Cluster
from semel.client.counts import ProducerCounts
from semel.client.errors import (
    AbortTransactionError,
    BadSetting,
    Closed,
    CommitFailed,
    IllegalState,
    RetriableError,
    SemelError,
    TimedOut,
    TransactionFailed,
)
from semel.client.metadata import TopicPartition
from semel.client.producer.accumulator import Accumulator
from semel.client.producer.batch import RECORD_OVERHEAD_BYTES, Delivery, ProducerBatch
from semel.client.producer.columns import Columns, ColumnsDelivery, batches_of
from semel.client.producer.lane import Lane
from semel.client.producer.partitioner import TopicLanes
from semel.client.producer.record_input import (
    MOST_TIMESTAMP_MS,
    Record,
    as_bytes,
    check_timestamp,
    check_topic_name,
    encoded_headers,
    serialized,
)
from semel.client.producer.sender import Sender
from semel.client.producer.settings import ProducerSettings
from semel.client.producer.transactions import Event, State, Transactions
from semel.client.producer.unseen import UnseenFailures, raise_or_note
from semel.client.serialization import NotReady, Serializer, converter
from semel.client.settings import load
from semel.client.values import Content, GroupIdentity, Headers, OffsetAndMetadata, RecordMetadata
from semel.host.api import Host
from semel.metrics import client_metrics
from semel.metrics.client_metrics import times_document
from semel.metrics.counts_kernel import Times
from semel.metrics.declaration import Metric
from semel.records.batch import read_header
from semel.records.partitioning import partition_of_key

if TYPE_CHECKING:
    from semel.client.option_types import ProducerOptions

    K_contra = TypeVar("K_contra", default=Content, contravariant=True)
    V_contra = TypeVar("V_contra", default=Content, contravariant=True)
else:
    K_contra, V_contra = TypeVar("K_contra"), TypeVar("V_contra")

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]

logger = logging.getLogger("semel.producer")

_UNCOMMITTED = (State.OPEN, State.FAILED, State.ABORTING, State.BROKEN)


class Producer(Generic[K_contra, V_contra]):
    """Settings are keyword arguments (docs/client-settings.md). Not for use from several threads: see `semel.sync`.
    The types of keys and values are those that the serializers take; without them bytes or texts."""

    def __init__(
        self,
        *,
        key_serializer: Callable[[K_contra], bytes | None] | Serializer[K_contra] | None = None,
        value_serializer: Callable[[V_contra], bytes | None] | Serializer[V_contra] | None = None,
        host: Host | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> None:
        serializers = {"key_serializer": key_serializer, "value_serializer": value_serializer}
        self.settings = load(ProducerSettings, {**settings, **serializers})
        self._owns_host = host is None
        self._host = host
        self._is_started = False
        self._is_closed = False
        self._topics: dict[str, TopicLanes] = {}
        self._serialize_key = converter("key_serializer", key_serializer)
        self._serialize_value = converter("value_serializer", value_serializer)
        self._choose = self.settings.partitioner
        self._is_plain = self._serialize_key is None and self._serialize_value is None and self._choose is None
        self._transactions: Transactions | None = None
        self._ends = asyncio.Lock()
        self.repeats_transactions = False
        """`semel.transform` sets it: a transaction that has failed is done again as a whole, so what is still sent in
        it is not refused. Its delivery has failed."""

    # -- life

    async def start(self) -> None:
        """Finds the cluster; `async with` does it by itself."""
        if self._is_closed:
            raise Closed("the producer was closed")
        if self._is_started:
            return
        if self._host is None:
            from semel.host.real import real_host

            self._host = real_host()
        self._clock = self._host.clock
        self._loop = asyncio.get_running_loop()
        self._cluster = Cluster(self._host, self.settings, allow_auto_create=True)
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise
        self._cluster.changed.append(self._cluster_changed)
        self._accumulator = Accumulator(self.settings)
        if self.settings.transactional_id is not None:
            self._transactions = Transactions(self._host, self._cluster, self.settings)
        self._sender = Sender(self._host, self._cluster, self._accumulator, self.settings, self._transactions)
        self._is_started = True

    # -- metrics

    def metrics(self) -> dict[str, float]:
        """What was sent, and how, since it was started."""
        counts = self._sender.counts if self._is_started else ProducerCounts()
        batches = counts.batches
        return {
            "records_sent": counts.records,
            "records_failed": counts.failed_records,
            "batches_sent": batches,
            "batches_retried": counts.retried_batches,
            "bytes_sent": counts.size_bytes,
            "records_per_batch": counts.records / batches if batches else 0.0,
            "bytes_per_batch": counts.size_bytes / batches if batches else 0.0,
            **times_document("request", counts.request_times),
        }

    def samples(self) -> dict[Metric, list[tuple[tuple[str, ...], float | Times]]]:
        """The same for `semel.client.prometheus`."""
        if not self._is_started:
            return {}
        counts, labels = self._sender.counts, (self.settings.client_id,)
        values: dict[Metric, float | Times] = {
            client_metrics.RECORDS_SENT: counts.records,
            client_metrics.RECORDS_FAILED: counts.failed_records,
            client_metrics.BATCHES_SENT: counts.batches,
            client_metrics.BATCHES_RETRIED: counts.retried_batches,
            client_metrics.BYTES_SENT: counts.size_bytes,
            client_metrics.PRODUCE_TIME: counts.request_times,
        }
        return {metric: [(labels, value)] for metric, value in values.items()}

    async def close(self, timeout_s: float | None = None) -> None:
        """Delivers what was sent, aborts a transaction that is open, and ends. What is not delivered within
        `timeout_s` (by default delivery.timeout.ms) fails. Then raises the first failure that the program has not
        seen; an exception that is being handled gets a note instead, so that a `finally` does not hide it."""
        raise_or_note(await self.end(timeout_s), sys.exception())

    async def end(self, timeout_s: float | None) -> SemelError | None:
        """Closes, and returns what `close` raises."""
        if self._is_closed:
            return None
        self._is_closed = True
        self._topics = {}
        try:
            return await self._end(timeout_s) if self._is_started else None
        finally:
            if self._owns_host and self._host is not None:
                self._host.close()

    async def _end(self, timeout_s: float | None) -> SemelError | None:
        state = None if self._transactions is None else self._transactions.state
        try:
            async with asyncio.timeout(self.settings.delivery_timeout_s if timeout_s is None else timeout_s):
                await self._wind_up()
        except (TimeoutError, SemelError):
            pass
        except BaseException as error:
            await self._shut_down()
            raise_or_note(self._take_unseen(), error)
            raise
        await self._shut_down()
        # What a transaction was to write is promised by its commit alone: one that was not committed has lost nothing.
        return None if state in _UNCOMMITTED else self._take_unseen()

    stop = close

    async def _wind_up(self) -> None:
        async with self._ends:  # a commit or an abort that runs comes to its end first
            transactions = self._transactions
            if transactions is not None and transactions.state in (State.OPEN, State.FAILED, State.ABORTING):
                self._tell_that_it_is_left(transactions)
                await self._abort(transactions)
            else:
                await self._flush()

    def _tell_that_it_is_left(self, transactions: Transactions) -> None:
        """Of a transaction that is neither committed nor aborted, unless an exception says more."""
        is_news = transactions.state is State.OPEN or self.unseen.take() is not None
        if is_news and sys.exception() is None:
            text = "%s was closed with a transaction open: it is aborted, and nothing that was sent in it counts"
            logger.warning(text, self.settings.transactional_id)

    async def _shut_down(self) -> None:
        await self._sender.close()
        if self._transactions is not None:
            await self._transactions.close()
        self._accumulator.close()
        self._accumulator.fail_all(Closed("the producer was closed before the record was delivered"))
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise_or_note(await self.end(None), error)

    # -- sending

    async def send(
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
        """Takes a record for sending, waiting only for room and for what is not known of the topic yet."""
        if partition is None and headers is None and on_delivery is None:
            batch = self.append_now(topic, value, key, timestamp_ms)
            if batch is not None:
                return Delivery(batch, batch.count - 1)
        try:
            while True:
                try:
                    record = self.judge(topic, value, key, partition, timestamp_ms, headers)
                except NotReady as missing:
                    await asyncio.to_thread(missing.fetch)
                else:
                    return await self.take(record, on_delivery)
        except AbortTransactionError as error:
            if not self.will_repeat:
                raise
            delivery = Delivery(_failed(topic, error), 0)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    def append_now(self, topic: Any, value: Any, key: Any, timestamp_ms: Any = None) -> ProducerBatch | None:
        """The cost of every record: plain bytes into an open batch, of which it is the last one then. None if it is not
        as simple as that, and nothing was done."""
        lanes = self._topics.get(topic)
        transactions = self._transactions
        if (
            lanes is None
            or type(value) is not bytes
            or not self._is_plain
            or (transactions is not None and transactions.state is not State.OPEN)
            or (timestamp_ms is not None and not (type(timestamp_ms) is int and 0 <= timestamp_ms <= MOST_TIMESTAMP_MS))
        ):
            return None
        size = RECORD_OVERHEAD_BYTES + len(value)
        if key is None:
            if lanes.sticky_bytes <= 0:
                return None
            batch = lanes.sticky.open
        elif type(key) is bytes:
            size += len(key)
            batch = lanes.lanes[partition_of_key(key, lanes.count)].open
        else:
            return None
        accumulator = self._accumulator
        if batch is None or size > batch.room_bytes or size > accumulator.free_bytes or accumulator.line:
            return None
        if key is None:
            lanes.sticky_bytes -= size
        accumulator.free_bytes -= size
        batch.room_bytes -= size
        batch.size_bytes += size
        batch.values.append(value)
        batch.keys.append(key)
        batch.timestamps.append(self._clock.wall_ms() if timestamp_ms is None else timestamp_ms)
        batch.count += 1
        return batch

    def judge(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> Record:
        """Raises BadRecord for what no broker could take, what says that nothing can be sent now, and NotReady if a
        serializer does. Any thread may call it: it changes nothing."""
        self._check_usable()
        check_topic_name(topic)
        key_bytes = as_bytes(serialized(self._serialize_key, key, topic, "key"), "key")
        value_bytes = as_bytes(serialized(self._serialize_value, value, topic, "value"), "value")
        header_bytes = encoded_headers(headers)
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms)
        size = self._accumulator.record_bytes(key_bytes, value_bytes, header_bytes)
        return Record(topic, value_bytes, key_bytes, partition, timestamp_ms, header_bytes, size, value, key)

    async def take(self, record: Record, on_delivery: Callable[[Delivery], object] | None = None) -> Delivery:
        """Any record that was judged: partitioner, a batch to be begun, memory to be waited for."""
        self._check_usable()
        topic, value, key, partition, timestamp_ms, header_bytes, size, given_value, given_key = record
        topic_lanes = self._topics.get(topic)
        if topic_lanes is None:
            topic_lanes = await self._lanes_of(topic)
        accumulator = self._accumulator
        if partition is not None:
            lane = await self._numbered(topic_lanes, partition)
        elif self._choose is not None:
            lane = topic_lanes.chosen(self._choose, given_key, given_value)
        elif key is not None:
            lane = topic_lanes.with_key(key)
        else:
            lane = topic_lanes.without_key(size, self.settings.batch_size)
        if not accumulator.take_room(size):
            self._sender.wake()
            await accumulator.wait_for_room(size)
            self._check_again(size)
        batch = accumulator.open_batch(lane, size, self._loop)
        is_new = batch.count == 0
        batch.append(key, value, self._clock.wall_ms() if timestamp_ms is None else timestamp_ms, header_bytes, size)
        delivery = Delivery(batch, batch.count - 1)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        if is_new:
            self._sender.wake()
            # A program that only ever sends would otherwise never let the sender have its turn.
            await asyncio.sleep(0)
        return delivery

    async def send_and_wait(
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
        delivery = await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return await delivery

    async def send_columns(self, topic: str, columns: Columns) -> ColumnsDelivery:
        """Sends an Arrow table or record batch, a record a row: columns `value`, and optionally `key`, `headers`,
        `timestamp`, `partition`. No Python object is made per record."""
        sent: list[ProducerBatch] = []
        try:
            self._check_usable()
            topic_lanes = self._topics.get(topic) or await self._lanes_of(topic)
            most_bytes = self._accumulator.max_record_bytes
            batches = batches_of(topic_lanes, columns, self.settings, most_bytes, self._clock.wall_ms())
            for partition, payload, count in batches:
                sent.append(await self._send_sealed(topic_lanes.lanes[partition], payload, count))
        except AbortTransactionError as error:
            if not self.will_repeat:
                raise
            sent.append(_failed(topic, error))
        return ColumnsDelivery(sent)

    async def send_batch(self, topic: str, partition: int, batch: bytearray) -> ColumnsDelivery:
        """Sends a record batch that was encoded elsewhere (`semel.records.columns`, say). Producer id, epoch, sequence
        and checksum are written into it, so it must not be used for anything else."""
        self._check_usable()
        topic_lanes = self._topics.get(topic) or await self._lanes_of(topic)
        lane = await self._numbered(topic_lanes, partition)
        self._accumulator.check_size(len(batch))
        return ColumnsDelivery([await self._send_sealed(lane, batch, read_header(batch).record_count)])

    async def _send_sealed(self, lane: Lane, payload: bytearray, count: int) -> ProducerBatch:
        await self._accumulator.wait_for_room(len(payload))
        self._check_again(len(payload))
        batch = ProducerBatch.sealed(lane.topic, lane.partition, self._loop.time(), payload, count)
        self._accumulator.add_sealed(lane, batch)
        self._sender.wake()
        return batch

    async def flush(self, timeout_s: float | None = None) -> None:
        """Returns when every record sent so far is delivered. Raises the first failure, with the count of the others,
        unless the program has awaited or asked those deliveries, or given them a callback; TimedOut after
        `timeout_s`."""
        self._check_started()
        try:
            async with asyncio.timeout(timeout_s):
                await self._flush()
        except TimeoutError:
            raise TimedOut(
                f"{len(self._accumulator.unfinished)} batches were not delivered within {timeout_s} s"
            ) from None
        lost = self._take_unseen()
        if lost is not None:
            raise lost

    async def _flush(self) -> None:
        self._sender.flushing += 1
        try:
            self._sender.wake()
            await self._accumulator.wait_for_all()
        finally:
            self._sender.flushing -= 1

    @property
    def unseen(self) -> UnseenFailures:
        return self._accumulator.unseen

    def _take_unseen(self) -> SemelError | None:
        return self.unseen.take(None if self._transactions is None else self._transactions.refusal)

    def is_ordinary(self, topic: Any, value: Any, key: Any) -> bool:
        """Whether `judge` would find nothing wrong; it may also say no because it has not looked. Any thread may
        ask."""
        transactions = self._transactions
        return (
            type(value) is bytes
            and (key is None or type(key) is bytes)
            and type(topic) is str
            and topic in self._topics
            and self._is_plain
            and (transactions is None or transactions.state is State.OPEN)
            and len(value) + (0 if key is None else len(key)) <= self._accumulator.max_content_bytes
        )

    @property
    def will_repeat(self) -> bool:
        """Whether the open transaction has failed, and all of it will be done again."""
        return self.repeats_transactions and self.transaction_state is State.FAILED

    @property
    def transaction_state(self) -> State | None:
        """None without a transactional_id."""
        return None if self._transactions is None else self._transactions.state

    async def partitions_for(self, topic: str) -> set[int]:
        self._check_started()
        return set((await self._cluster.topic(topic, self.settings.max_block_s)).partitions)

    async def _lanes_of(self, topic: str) -> TopicLanes:
        check_topic_name(topic)
        known = await self._cluster.topic(topic, self.settings.max_block_s)
        self._check_usable()
        if topic not in self._topics:
            self._topics[topic] = TopicLanes(known, self._cluster.host.random, self._accumulator.lane)
        return self._topics[topic]

    async def _numbered(self, lanes: TopicLanes, partition: int) -> Lane:
        """The lane of a partition; one that we do not know may have been added just now."""
        if isinstance(partition, int) and partition >= lanes.count:
            with suppress(RetriableError, TimeoutError):
                async with asyncio.timeout(self.settings.max_block_s):
                    await self._cluster.refresh()
            self._check_usable()
        return lanes.numbered(partition)

    def _cluster_changed(self) -> None:
        for name, lanes in self._topics.items():
            topic = self._cluster.topics.get(name)
            if topic is not None and topic.is_usable and topic is not lanes.topic:
                lanes.update(topic, self._accumulator.lane)

    def _check_again(self, size: int) -> None:
        """After a wait: the producer may have been closed, or its transaction have failed, meanwhile."""
        try:
            self._check_usable()
        except SemelError:
            self._accumulator.release(size)
            raise

    # -- transactions

    async def init_transactions(self) -> None:
        """Takes over the transactional id, and ends what was left open under it. `begin` does it if it was not called;
        who also reads calls it before: offsets in an open transaction are held back from whoever joins the group."""
        self._check_started()
        async with self._ends:
            await self._transactional().init()

    async def begin(self) -> None:
        transactions = self._transactional()
        self._check_started()
        if transactions.state is State.UNINITIALISED:
            await self.init_transactions()
        transactions.begin()

    async def commit(self) -> None:
        """Returns when the transaction is committed. After a RetriableError the outcome is open: call it again."""
        transactions = self._transactional()
        async with self._ends:
            if transactions.refusal is None:
                transactions.move(Event.COMMIT)
                await self._flush()
            if transactions.refusal is not None:
                raise self._take_unseen() or transactions.refusal
            await transactions.end(is_commit=True)

    async def abort(self) -> None:
        """Nothing that was sent since `begin` will be read. After a RetriableError call it again."""
        transactions = self._transactional()
        async with self._ends:
            await self._abort(transactions)

    async def _abort(self, transactions: Transactions) -> None:
        transactions.move(Event.ABORT)
        self._accumulator.fail_waiting(TransactionFailed("the transaction was aborted before the record was sent"))
        await self._sender.wait_for_answers()
        lanes = self._accumulator.lanes.values()
        if any(lane.gap is not None and lane.identity == transactions.identity for lane in lanes):
            transactions.require_new_epoch()
        self.unseen.clear()  # nothing of it counts any more
        await transactions.end(is_commit=False)

    begin_transaction = begin
    commit_transaction = commit
    abort_transaction = abort

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Commits at the end of the block, aborts when an exception leaves it."""
        await self.begin()
        try:
            yield self
            await self.commit_until_known()
        except BaseException as reason:
            if self._transactions is not None and self._transactions.state in (State.OPEN, State.FAILED):
                try:
                    await asyncio.shield(self.abort())
                except SemelError as error:
                    reason.add_note(f"the transaction could not be aborted either: {error}")
            raise

    async def commit_until_known(self) -> None:
        """Commits, and asks again for as long as the outcome is open."""
        while True:
            try:
                await self.commit()
                return
            except AbortTransactionError:
                raise
            except RetriableError:
                if self._transactional().state is not State.COMMITTING or self._is_closed:
                    raise

    async def send_offsets_to_transaction(self, offsets: Offsets, group: str | GroupIdentity) -> None:
        """Commits a consumer's offsets with the transaction. `group` is `consumer.group_metadata()`, by which one that
        was thrown out of the group is refused; or just the group's name, without that check."""
        transactions = self._transactional()
        identity = GroupIdentity(group) if isinstance(group, str) else group
        if identity.auto_commits:
            raise BadSetting(
                f"enable_auto_commit=True of the consumer in group {identity.group_id!r} contradicts "
                "send_offsets_to_transaction: its offsets would be committed outside of the transaction too; "
                "set enable_auto_commit=False"
            )
        entries = {
            TopicPartition(*partition): OffsetAndMetadata(position) if isinstance(position, int) else position
            for partition, position in offsets.items()
        }
        async with self._ends:  # the end must not overtake them
            self._check_usable()
            if identity.is_outside:
                # Brokers check a member that is named. With none named they would take offsets from anybody.
                text = f"the consumer is not a member of group {identity.group_id!r}, not yet or not any more"
                raise transactions.fail(CommitFailed(text))
            if entries:
                await transactions.add_offsets(entries, identity)

    def refuse(self, error: SemelError) -> None:
        """A record of this transaction could not even be taken, and its sender has not looked: it must not commit."""
        if self._transactions is not None and self._transactions.state is State.OPEN:
            self._transactions.fail(error)

    def _transactional(self) -> Transactions:
        self._check_started()
        if self._transactions is None:
            raise IllegalState("this producer has no transactions: give it a transactional_id")
        return self._transactions

    # -- checks

    def _check_started(self) -> None:
        if not self._is_started or self._is_closed:
            raise self._unusable()

    def _check_usable(self) -> None:
        self._check_started()
        if self._transactions is not None:
            self._transactions.check_may_write()

    def _unusable(self) -> SemelError:
        if self._is_closed:
            return Closed("the producer was closed")
        return IllegalState("the producer was not started: use `async with`, or await start()")


def _failed(topic: str, error: SemelError) -> ProducerBatch:
    batch = ProducerBatch.sealed(topic, -1, 0.0, bytearray(), 1)
    batch.finish(error)
    return batch
