"""Transactions and producers through the admin: who holds a partition back, and how that is ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from admin_fakes import FakeCluster, InTurn, faked
from admin_world import lost, on_broker
from transaction_harness import (
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    markers,
    read_committed,
    started,
    with_transactions,
)

from client_world import ClientWorld, batch_of
from semel.client.admin.admin import Admin
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import OffsetSpec
from semel.client.errors import BadSetting, BrokerRefused, UnknownTopic, UnsupportedByBroker
from semel.client.metadata import TopicPartition
from semel.sim.attack.fault_policy import Blow, Fault
from semel.wire.errors import ErrorCode
from semel.wire.schema import Response
from semel.wire.spec.describe_producers import (
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    ProducerState,
)
from semel.wire.spec.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.list_transactions import ListedTransaction, ListTransactionsRequest, ListTransactionsResponse
from semel.wire.spec.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

PLACE = TopicPartition(TOPIC, 0)
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


async def hanging(world: ClientWorld) -> TransactionalProducer:
    """A producer that has written without having joined, as older brokers allowed: nobody will end its transaction."""
    client = await with_transactions(world.node)
    producer = await started(client, V1)
    assert await producer.write(b"hangs") == 0
    assert (await client.produce(TOPIC, batch_of(b"behind"))).error_code == 0
    return producer


@on_broker()
async def test_transactions_are_listed_and_described(world: ClientWorld, admin: Admin) -> None:
    client = await with_transactions(world.node, 2)
    idle = await started(client, V1, "idle")
    opened = await started(client, V1, "open", timeout_ms=12_345)
    assert await opened.add(0, 1) == 0
    await asyncio.sleep(5)
    listed = await admin.list_transactions()
    assert {name: one.state for name, one in listed.items()} == {"idle": "Empty", "open": "Ongoing"}
    assert list(await admin.list_transactions(states=["Ongoing"])) == ["open"]
    assert list(await admin.list_transactions(producer_ids=[idle.producer_id])) == ["idle"]
    assert list(await admin.list_transactions(longer_than_ms=4000)) == ["open"]
    assert list(await admin.list_transactions(pattern="id.*")) == ["idle"]
    with pytest.raises(BadSetting, match="Nonsense"):
        await admin.list_transactions(states=["Nonsense"])
    found = await admin.describe_transactions(["idle", "open"])
    assert (found["open"].producer_id, found["open"].producer_epoch) == opened.identity
    assert (found["open"].timeout_ms, found["open"].coordinator_id) == (12_345, 1)
    assert found["open"].partitions == {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)}
    assert found["open"].started_ms is not None
    assert found["idle"].started_ms is None
    with pytest.raises(AdminErrors) as failed:
        await admin.describe_transactions(["idle", "nobody"])
    assert failed.value.errors["nobody"].code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@on_broker()
async def test_producers_of_a_partition_are_described(world: ClientWorld, admin: Admin) -> None:
    client = await with_transactions(world.node)
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await producer.write(b"a", b"b") == 0
    (state,) = (await admin.describe_producers(TOPIC))[PLACE]
    assert (state.producer_id, state.producer_epoch) == producer.identity
    assert (state.last_sequence, state.transaction_start, state.coordinator_epoch) == (1, 0, None)
    assert await producer.commit() == 0
    await asyncio.sleep(1)
    (state,) = (await admin.describe_producers([PLACE]))[PLACE]
    assert state.transaction_start is None
    assert state.coordinator_epoch is not None
    with pytest.raises(BadSetting, match="no open transaction"):
        await admin.abort_transaction(PLACE, state)
    with pytest.raises(UnknownTopic):
        await admin.describe_producers("missing")


@on_broker()
async def test_who_holds_a_partition_back_is_found(world: ClientWorld, admin: Admin) -> None:
    client = await with_transactions(world.node, 2)
    producers = [await started(client, versions, name) for versions, name in ((V2, "second"), (V1, "first"))]
    second, first = producers
    assert await first.add(0) == 0
    assert await first.write(b"a") == 0
    assert await second.write(b"b") == 0
    found = await admin.find_open_transactions(TOPIC)
    assert [one.transactional_id for one in found[PLACE]] == ["first", "second"]
    assert [one.start_offset for one in found[PLACE]] == [0, 1]
    assert not any(one.is_hanging for one in found[PLACE])
    assert found[TopicPartition(TOPIC, 1)] == ()
    stable = await admin.list_offsets([PLACE], OffsetSpec.LATEST, isolation_level="read_committed")
    assert stable[PLACE].offset == found[PLACE][0].start_offset


@on_broker(settings=UNVERIFIED)
async def test_a_transaction_that_hangs_is_found_and_aborted(world: ClientWorld, admin: Admin) -> None:
    producer = await hanging(world)
    ((found,),) = (await admin.find_open_transactions(PLACE)).values()
    assert found.is_hanging
    assert found.producer.producer_id == producer.producer_id
    assert found.transactional_id == "payments", "its id is known, and does not know the partition"
    await admin.abort_transaction(PLACE, found.producer)
    client = await world.node.client()
    assert await read_committed(client) == [b"behind"]
    assert await markers(client) == [("ABORT", producer.epoch)]
    assert await admin.find_open_transactions(PLACE) == {PLACE: ()}


@on_broker(lost("WriteTxnMarkers"), settings=UNVERIFIED)
async def test_a_marker_whose_answer_was_lost_is_not_written_twice(world: ClientWorld, admin: Admin) -> None:
    producer = await hanging(world)
    (state,) = (await admin.describe_producers(PLACE))[PLACE]
    await admin.abort_transaction(PLACE, state)
    assert await markers(await world.node.client()) == [("ABORT", producer.epoch)]


@on_broker({("WriteTxnMarkers", 1): Blow(Fault.CUT_BEFORE)}, settings=UNVERIFIED)
async def test_a_marker_that_never_arrived_is_written_after_all(world: ClientWorld, admin: Admin) -> None:
    producer = await hanging(world)
    (state,) = (await admin.describe_producers(PLACE))[PLACE]
    await admin.abort_transaction(PLACE, state)
    assert await markers(await world.node.client()) == [("ABORT", producer.epoch)]


@on_broker()
async def test_producers_are_fenced_and_their_transactions_aborted(world: ClientWorld, admin: Admin) -> None:
    client = await with_transactions(world.node)
    producer = await started(client, V2)
    assert await producer.write(b"a") == 0
    fenced = await admin.fence_producers(["payments", "never used"])
    assert fenced["payments"].producer_id == producer.producer_id
    assert fenced["payments"].producer_epoch > producer.epoch
    assert await producer.write(b"b") != 0
    assert await producer.commit() != 0
    assert (await admin.describe_transactions("payments"))["payments"].state in ("CompleteAbort", "Empty")
    assert await read_committed(client) == []


# -- what our broker never says


def producers_answer(*states: ProducerState, code: int = 0) -> DescribeProducersResponse:
    partition = DescribeProducersPartitionResult(partition_index=0, error_code=code, active_producers=list(states))
    return DescribeProducersResponse(topics=[DescribeProducersTopicResult(name="t", partitions=[partition])])


def marker_answer(code: int = 0) -> WriteTxnMarkersResponse:
    partition = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = WritableTxnMarkerTopicResult(name="t", partitions=[partition])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])])


def transactions_of(cluster: FakeCluster, *known: DescribedTransaction) -> None:
    cluster.coordinators = {one.transactional_id: 1 for one in known}
    cluster.answers[ListTransactionsRequest] = lambda node_id, request: ListTransactionsResponse(
        transaction_states=[
            ListedTransaction(transactional_id=one.transactional_id, producer_id=one.producer_id) for one in known
        ]
        if node_id == 1
        else []
    )
    cluster.answers[DescribeTransactionsRequest] = lambda node_id, request: DescribeTransactionsResponse(
        transaction_states=[one for one in known if one.transactional_id in request.transactional_ids]
    )


@faked(1, 2)
async def test_a_transaction_that_ended_while_coordinators_were_asked_does_not_hang(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [2]}
    opened = ProducerState(producer_id=7, current_txn_start_offset=3)
    transactions_of(cluster)
    cluster.answers[DescribeProducersRequest] = InTurn(
        producers_answer(opened), producers_answer(ProducerState(producer_id=7))
    )
    async with cluster.admin() as admin:
        assert await admin.find_open_transactions("t") == {TopicPartition("t", 0): ()}
        cluster.answers[DescribeProducersRequest] = InTurn(producers_answer(opened))
        ((found,),) = (await admin.find_open_transactions("t")).values()
    assert found.is_hanging
    assert found.transaction is None
    assert found.transactional_id is None
    assert {request.producer_id_filters[0] for request in cluster.requests(ListTransactionsRequest)} == {7}


@faked(1)
async def test_open_transactions_are_told_oldest_first(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1]}
    transactions_of(cluster)
    states = [ProducerState(producer_id=number, current_txn_start_offset=start) for number, start in ((7, 9), (8, 3))]
    cluster.answers[DescribeProducersRequest] = InTurn(producers_answer(*states))
    async with cluster.admin() as admin:
        (found,) = (await admin.find_open_transactions("t")).values()
    assert [one.start_offset for one in found] == [3, 9]


@faked(1)
async def test_an_id_that_expired_after_it_was_listed_knows_nothing(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1]}
    gone = DescribedTransaction(transactional_id="gone", producer_id=7, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    transactions_of(cluster, gone)
    cluster.answers[DescribeProducersRequest] = lambda node_id, request: producers_answer(
        ProducerState(producer_id=7, current_txn_start_offset=3)
    )
    async with cluster.admin() as admin:
        ((found,),) = (await admin.find_open_transactions("t")).values()
        assert found.is_hanging
        other = DescribedTransaction(transactional_id="other", producer_id=8)
        transactions_of(cluster, gone, other)
        ((found,),) = (await admin.find_open_transactions("t")).values()
        assert found.is_hanging
        gone.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        with pytest.raises(AdminErrors):
            await admin.find_open_transactions("t")


@faked(1)
async def test_a_later_transaction_of_the_same_producer_is_left_alone(cluster: FakeCluster) -> None:
    """The answer to the marker is lost; when the partition is asked, the producer is one transaction further."""
    cluster.topics = {"t": [1]}
    cluster.answers[DescribeProducersRequest] = InTurn(
        producers_answer(
            ProducerState(producer_id=7, producer_epoch=1, coordinator_epoch=-1, current_txn_start_offset=3)
        ),
        producers_answer(ProducerState(producer_id=7, producer_epoch=1, current_txn_start_offset=9)),
    )
    cluster.answers[WriteTxnMarkersRequest] = InTurn(None)
    async with cluster.admin() as admin:
        (state,) = (await admin.describe_producers("t"))[TopicPartition("t", 0)]
        await admin.abort_transaction(TopicPartition("t", 0), state)
    (request,) = cluster.requests(WriteTxnMarkersRequest)
    assert request.markers[0].coordinator_epoch == 0, "no coordinator has ended anything here yet"


@faked(1, 2)
async def test_a_marker_goes_to_the_leader_with_what_the_partition_said_of_the_producer(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [2]}
    state = ProducerState(producer_id=7, producer_epoch=3, coordinator_epoch=5, current_txn_start_offset=3)
    cluster.answers[DescribeProducersRequest] = InTurn(producers_answer(state))
    cluster.answers[WriteTxnMarkersRequest] = InTurn(
        marker_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), marker_answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    )
    async with cluster.admin() as admin:
        (told,) = (await admin.describe_producers("t"))[TopicPartition("t", 0)]
        with pytest.raises(BrokerRefused, match="INVALID_PRODUCER_EPOCH"):
            await admin.abort_transaction(TopicPartition("t", 0), told)
    assert cluster.nodes_asked(WriteTxnMarkersRequest) == [2, 2]
    (marker,) = cluster.requests(WriteTxnMarkersRequest)[0].markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
    assert (marker.transaction_result, marker.transaction_version) == (False, 0)


@faked(1)
async def test_fencing_waits_for_a_transaction_that_is_being_ended(cluster: FakeCluster) -> None:
    cluster.coordinators = {"id": 1}

    def answer(**fields: Any) -> Response:
        return InitProducerIdResponse(**fields)

    cluster.answers[InitProducerIdRequest] = InTurn(
        answer(error_code=ErrorCode.CONCURRENT_TRANSACTIONS), answer(producer_id=7, producer_epoch=4)
    )
    async with cluster.admin() as admin:
        assert await admin.fence_producers("id") == {"id": (7, 4)}
    assert cluster.versions_asked(InitProducerIdRequest) == [5, 5], "version 6 is for two-phase commit"
    assert all(request.producer_id == -1 for request in cluster.requests(InitProducerIdRequest))


@faked(1)
async def test_filters_of_transactions_that_a_broker_does_not_know_are_told(cluster: FakeCluster) -> None:
    cluster.limits = {66: 0}
    cluster.answers[ListTransactionsRequest] = lambda node_id, request: ListTransactionsResponse()
    async with cluster.admin() as admin:
        await admin.list_transactions(states=["Ongoing"])
        for filters in ({"longer_than_ms": 1}, {"pattern": "x"}):
            with pytest.raises(UnsupportedByBroker):
                await admin.list_transactions(**filters)
