"""Transactional producers and readers that speak in raw requests: every step is a request of its own, of either
generation of the protocol, and nothing is retried or hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from broker_harness import NOW_MS, Node, RawClient, fetch_request, partition_of

from semel.coordinator.topic_names import TRANSACTIONS_TOPIC
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.transactions import Transaction, Transactions
from semel.records.batch import whole_batches
from semel.records.build import build_batch
from semel.records.control import ControlType, read_control
from semel.records.read import read_records
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_offsets_to_txn import AddOffsetsToTxnRequest
from semel.wire.spec.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from semel.wire.spec.describe_transactions import DescribedTransaction, DescribeTransactionsRequest
from semel.wire.spec.end_txn import EndTxnRequest
from semel.wire.spec.fetch import FetchResponsePartition
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData

ID = "payments"
TOPIC = "out"
READ_COMMITTED = 1
# What the Java client sends today when it speaks the first generation, and what only the second one has.
V1 = {"init": 4, "add": 3, "offsets": 3, "produce": 11, "end": 4}
V2 = {"init": 5, "add": 3, "offsets": 4, "produce": 12, "end": 5}
# What librdkafka pins: no new error codes.
OLD = {"init": 1, "add": 0, "offsets": 0, "produce": 7, "end": 1}


async def with_transactions(
    node: Node, partitions: int = 1, configs: Mapping[str, str | None] | None = None
) -> RawClient:
    """A client of a node that has the topic of the coordinator and one to write to."""
    client = await node.client()
    await node.broker.roles.internal_topics.ensure(TRANSACTIONS_TOPIC)
    created = await client.create_topic(TOPIC, partitions, configs)
    assert created.error_code == 0
    return client


class TransactionalProducer:
    """One instance of a producer. It remembers its id, epoch and sequences, as a client does."""

    def __init__(
        self, client: RawClient, versions: Mapping[str, int], transactional_id: str = ID, timeout_ms: int = 60_000
    ) -> None:
        self.client = client
        self.versions = versions
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self.identity:
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    async def init(self, *, keeps_identity: bool = False, timeout_ms: int | None = None) -> ErrorCode:
        """A new instance; with `keeps_identity` the same one, which asks for another epoch (KIP-360)."""
        claimed = self.identity if keeps_identity else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            producer_id=claimed[0],
            producer_epoch=claimed[1],
        )
        answer = await self.client.ask(request, self.versions["init"])
        if answer.error_code == 0:
            self._become(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def add_request(self, *partitions: int, topic: str = TOPIC) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))],
        )

    async def add(self, *partitions: int, topic: str = TOPIC, on: RawClient | None = None) -> ErrorCode:
        answer = await (on or self.client).ask(self.add_request(*partitions, topic=topic), self.versions["add"])
        codes = {part.partition_error_code for part in answer.results_by_topic_v3_and_below[0].results_by_partition}
        return ErrorCode(codes.pop()) if len(codes) == 1 else ErrorCode.OPERATION_NOT_ATTEMPTED

    async def add_offsets(self, group: str, *, on: RawClient | None = None) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return ErrorCode((await (on or self.client).ask(request, self.versions["offsets"])).error_code)

    def batch(self, *values: bytes, partition: int = 0, topic: str = TOPIC, **options: Any) -> bytearray:
        """The next batch for a partition: its sequence is used up."""
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(values)
        return build_batch(
            list(values),
            base_timestamp_ms=NOW_MS,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
            **options,
        )

    def produce_request(self, batches: Mapping[int, bytearray], topic: str = TOPIC) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=memoryview(batch)) for index, batch in batches.items()]
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )

    async def send(
        self, batch: bytearray, *, partition: int = 0, topic: str = TOPIC, on: RawClient | None = None
    ) -> PartitionProduceResponse:
        request = self.produce_request({partition: batch}, topic)
        answer = await (on or self.client).ask(request, self.versions["produce"])
        return cast(PartitionProduceResponse, answer.responses[0].partition_responses[0])

    async def write(self, *values: bytes, partition: int = 0, topic: str = TOPIC, **options: Any) -> ErrorCode:
        batch = self.batch(*values, partition=partition, topic=topic, **options)
        return ErrorCode((await self.send(batch, partition=partition, topic=topic)).error_code)

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    async def end(self, *, commit: bool, on: RawClient | None = None) -> ErrorCode:
        answer = await (on or self.client).ask(self.end_request(commit=commit), self.versions["end"])
        if answer.error_code == 0 and self.versions["end"] >= 5:
            self._become(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    async def commit(self) -> ErrorCode:
        return await self.end(commit=True)

    async def abort(self) -> ErrorCode:
        return await self.end(commit=False)

    async def transaction(self, *values: bytes, commit: bool = True, partition: int = 0) -> None:
        """A whole transaction in one partition; every step must succeed."""
        if self.versions["end"] < 5:
            assert await self.add(partition) == 0
        assert await self.write(*values, partition=partition) == 0
        assert await self.end(commit=commit) == 0


async def started(
    client: RawClient, versions: Mapping[str, int], transactional_id: str = ID, timeout_ms: int = 60_000
) -> TransactionalProducer:
    producer = TransactionalProducer(client, versions, transactional_id, timeout_ms)
    assert await producer.init() == 0
    return producer


async def committed_part(
    client: RawClient, offset: int = 0, partition: int = 0, topic: str = TOPIC
) -> FetchResponsePartition:
    request = fetch_request({(topic, partition): offset}, isolation_level=READ_COMMITTED)
    return partition_of(await client.ask(request, 12), topic, partition)


def committed_values(part: FetchResponsePartition, offset: int = 0) -> list[bytes | None]:
    """What a read_committed client gives to its application: it drops what the aborted list and the markers tell it."""
    assert part.error_code == 0
    data = bytes(cast(Any, part.records) or b"")
    waiting = sorted(part.aborted_transactions or (), key=lambda aborted: aborted.first_offset)
    aborting: set[int] = set()
    values: list[bytes | None] = []
    for position, header in whole_batches(data):
        batch = data[position : position + header.size_bytes]
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborting.add(waiting.pop(0).producer_id)
        if header.is_control:
            marker = read_control(batch, header)
            if marker is not None and marker.kind == ControlType.ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            values += [record.value for record in read_records(batch, header) if record.offset >= offset]
    return values


async def read_committed(client: RawClient, partition: int = 0, topic: str = TOPIC) -> list[bytes | None]:
    return committed_values(await committed_part(client, 0, partition, topic))


async def read_all(client: RawClient, partition: int = 0, topic: str = TOPIC) -> list[bytes | None]:
    """Every data record that read_uncommitted gives."""
    part = partition_of(await client.ask(fetch_request({(topic, partition): 0}), 12), topic, partition)
    data = bytes(cast(Any, part.records) or b"")
    return [
        record.value
        for position, header in whole_batches(data)
        if not header.is_control
        for record in read_records(data[position : position + header.size_bytes], header)
    ]


async def markers(client: RawClient, partition: int = 0, topic: str = TOPIC) -> list[tuple[str, int]]:
    """The markers of a partition in order: how they end a transaction, and with which epoch."""
    part = partition_of(await client.ask(fetch_request({(topic, partition): 0}), 12), topic, partition)
    data = bytes(cast(Any, part.records) or b"")
    found = []
    for position, header in whole_batches(data):
        if header.is_control:
            marker = read_control(data[position : position + header.size_bytes], header)
            assert marker is not None
            found.append((ControlType(marker.kind).name, header.producer_epoch))
    return found


async def described(client: RawClient, transactional_id: str = ID) -> DescribedTransaction:
    answer = await client.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]))
    return cast(DescribedTransaction, answer.transaction_states[0])


def known(node: Node, transactional_id: str = ID) -> Transaction:
    return coordinator(node).shards.for_key(transactional_id).state.by_id[transactional_id]


def coordinator(node: Node) -> TransactionCoordinator:
    return node.broker.transactions


def hold_markers(node: Node) -> asyncio.Event:
    """No marker is written before the event is set."""
    may_write = asyncio.Event()
    write_marker = node.broker.markers.write_marker

    async def held_back(*arguments: Any) -> None:
        await may_write.wait()
        commit = write_marker(*arguments)
        if commit is not None:
            await commit

    node.broker.markers.write_marker = held_back  # type: ignore[method-assign,assignment]
    return may_write


def check_replay_equals_live(node: Node) -> None:
    """Memory is what replaying the topic gives, nothing else."""
    from semel.coordinator.shard import replay_batch

    for shard in coordinator(node).shards.loaded():
        replayed = Transactions()
        for segment in shard.partition.log.segments:
            for _, header, batch in segment.batches():
                replay_batch(replayed, header, batch)
        assert replayed.by_id == shard.state.by_id
        assert replayed.offsets == shard.state.offsets
