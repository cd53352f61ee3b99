"""What an administrator sees of transactions, and how one that hangs is ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import Node, RawClient, batch_of, simulated
from transaction_harness import (
    ID,
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    described,
    known,
    markers,
    read_committed,
    started,
    with_transactions,
)

from semel.broker.authoriser import Operation, ResourceType
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from semel.wire.spec.list_transactions import ListTransactionsRequest
from semel.wire.spec.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


async def listed(client: RawClient, **filters: Any) -> dict[str, str]:
    answer = await client.ask(ListTransactionsRequest(**filters))
    assert answer.error_code == 0
    return {found.transactional_id: found.transaction_state for found in answer.transaction_states}


@simulated()
async def test_transactions_are_listed_by_state_producer_and_age(node: Node) -> None:
    client = await with_transactions(node)
    assert await listed(client) == {}
    idle = await started(client, V1, "idle")
    opened = await started(client, V1, "open")
    assert await opened.add(0) == 0
    done = await started(client, V2, "done")
    await done.transaction(b"a")
    await asyncio.sleep(5)
    assert await listed(client) == {"idle": "Empty", "open": "Ongoing", "done": "CompleteCommit"}
    assert await listed(client, state_filters=["Ongoing"]) == {"open": "Ongoing"}
    assert await listed(client, producer_id_filters=[idle.producer_id]) == {"idle": "Empty"}
    assert await listed(client, duration_filter=4000, state_filters=["Ongoing"]) == {"open": "Ongoing"}
    assert await listed(client, duration_filter=6000) == {}
    assert await listed(client, transactional_id_pattern="(idle|do.*)") == {"idle": "Empty", "done": "CompleteCommit"}
    assert await listed(client, transactional_id_pattern="ope") == {}, "the whole name must match"
    answer = await client.ask(ListTransactionsRequest(transactional_id_pattern="(open"))
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    answer = await client.ask(ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"]))
    assert list(answer.unknown_state_filters) == ["Nonsense"]


@simulated()
async def test_a_transaction_is_described_with_its_producer_age_and_partitions(node: Node) -> None:
    client = await with_transactions(node, 3)
    producer = await started(client, V1, timeout_ms=12_345)
    assert await producer.add(2, 0) == 0
    found = await described(client)
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", 12_345)
    assert (found.producer_id, found.producer_epoch) == producer.identity
    assert found.transaction_start_time_ms == known(node).started_ms
    assert [(topic.topic, list(topic.partitions)) for topic in found.topics] == [(TOPIC, [0, 2])]
    assert (await described(client, "unknown")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("request_of", ["list", "describe"])
@simulated()
async def test_nothing_is_shown_that_a_power_cut_could_take_back(node: Node, request_of: str) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    node.hold_flushes(1000)
    client.send(producer.add_request(0), 3)
    await asyncio.sleep(0.01)
    other = await node.client()
    asked = asyncio.ensure_future(listed(other) if request_of == "list" else described(other))
    await asyncio.sleep(0.5)
    assert not asked.done()
    await asyncio.sleep(2)
    assert asked.done()
    node.let_flushes_go()


async def producers_of(client: RawClient) -> list[Any]:
    request = DescribeProducersRequest(topics=[DescribeProducersTopic(name=TOPIC, partition_indexes=[0])])
    return list((await client.ask(request)).topics[0].partitions[0].active_producers)


@simulated()
async def test_a_partition_tells_where_the_open_transaction_of_a_producer_begins(node: Node) -> None:
    client = await with_transactions(node)
    assert (await client.produce(TOPIC, batch_of(b"a", b"b"))).error_code == 0
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await producer.write(b"c") == 0
    (found,) = await producers_of(client)
    assert (found.producer_id, found.producer_epoch, found.current_txn_start_offset) == (*producer.identity, 2)
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    (found,) = await producers_of(client)
    assert found.current_txn_start_offset == -1
    assert found.coordinator_epoch >= 0


def end_marker(producer: TransactionalProducer, coordinator_epoch: int, *, commit: bool = False) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
    )


async def write_marker(client: RawClient, marker: WritableTxnMarker, version: int = 1) -> ErrorCode:
    answer = await client.ask(WriteTxnMarkersRequest(markers=[marker]), version)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


@simulated(settings={"transaction.partition.verification.enable": "false"})
async def test_an_administrator_ends_a_transaction_that_hangs(node: Node) -> None:
    """Written without having joined, as older brokers allowed: no coordinator will ever end it."""
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.write(b"hangs") == 0
    assert (await client.produce(TOPIC, batch_of(b"behind"))).error_code == 0
    await asyncio.sleep(3600)
    client = await node.client()
    assert await read_committed(client) == []
    (found,) = await producers_of(client)
    assert found.current_txn_start_offset == 0
    assert await write_marker(client, end_marker(producer, found.coordinator_epoch)) == 0
    assert await read_committed(client) == [b"behind"]
    assert await markers(client) == [("ABORT", producer.epoch)]


@simulated()
async def test_a_marker_of_an_older_epoch_or_coordinator_is_refused(node: Node) -> None:
    client = await with_transactions(node)
    await started(client, V1)
    producer = await started(client, V1)
    await producer.transaction(b"a")
    await asyncio.sleep(0.1)
    assert await producer.add(0) == 0
    assert await producer.write(b"b") == 0
    assert await write_marker(client, end_marker(producer, -1)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    marker = end_marker(producer, 0)
    marker.producer_epoch -= 1
    assert await write_marker(client, marker) == ErrorCode.INVALID_PRODUCER_EPOCH
    marker = end_marker(producer, 0)
    marker.transaction_version = 2
    assert await write_marker(client, marker, 2) == ErrorCode.INVALID_PRODUCER_EPOCH, "it does not raise the epoch"
    marker.topics = [WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0])]
    assert await write_marker(client, marker) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await read_committed(client) == [b"a"]


class NoTransactions:
    """Denies what concerns transactional ids and the cluster."""

    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        return resource not in (ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER) or operation == Operation.CREATE


@simulated(authoriser=NoTransactions)
async def test_who_may_not_is_refused_and_shown_nothing(node: Node) -> None:
    client = await with_transactions(node)
    producer = TransactionalProducer(client, V1)
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await producer.init() == denied
    assert await producer.add(0) == denied
    assert await producer.add_offsets("group") == denied
    assert await producer.commit() == denied
    producer.producer_id, producer.epoch = 1, 0
    for versions in (V1, V2):
        producer.versions = versions
        assert await producer.write(b"a") == denied
    assert await listed(client) == {}
    assert (await described(client, ID)).error_code == denied
    assert await write_marker(client, end_marker(producer, 0)) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class NoLook:
    """Transactions may be made, but not looked at."""

    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        return resource != ResourceType.TRANSACTIONAL_ID or operation != Operation.DESCRIBE


@simulated(authoriser=NoLook)
async def test_transactions_that_one_may_not_look_at_are_not_listed(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await listed(client) == {}
