"""Aborted transactions, offsets in transactions, and calls that do not fit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scripted_answers import add_partitions_answer, commit_offsets_answer
from scripted_broker import ScriptedCluster, scripted
from semel.client.errors import BadSetting, CommitFailed, IllegalState, TransactionFailed
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.client.values import GroupIdentity, OffsetAndMetadata
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_offsets_to_txn import AddOffsetsToTxnRequest
from semel.wire.spec.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
)
from semel.wire.spec.end_txn import EndTxnRequest, EndTxnResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.produce import ProduceRequest
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
)

ID = {"transactional_id": "payments"}
ONE_RECORD_EACH: dict[str, Any] = {"batch_size": 1, "linger_ms": 0}
PARTITION = TopicPartition("in", 3)


# -- aborting


@pytest.mark.parametrize("generation", [1, 2])
@scripted()
async def test_an_abort_fails_what_waits_and_awaits_what_is_under_way(
    cluster: ScriptedCluster, generation: int
) -> None:
    if generation == 1:
        cluster.first_generation()
    cluster.topic("t")
    settings = {**ID, **ONE_RECORD_EACH, "max_in_flight_requests_per_connection": 1}
    async with cluster.producer(**settings) as producer:
        await producer.begin()
        cluster.hold(ProduceRequest)
        sent, waiting = await producer.send("t", b"1"), await producer.send("t", b"2")
        asked = await cluster.next(ProduceRequest)
        aborting = asyncio.create_task(producer.abort())
        await asyncio.sleep(1)
        assert isinstance(waiting.exception(), TransactionFailed)
        assert not sent.done()
        assert not cluster.all(EndTxnRequest), "a batch under way could arrive after the marker"
        asked.accept()
        cluster.release(ProduceRequest)
        await aborting
        assert sent.result().offset == 0
        await producer.begin()
        await producer.send_and_wait("t", b"3")
        await producer.commit()
    assert cluster.logs("t") == [b"1", b"3"]
    assert cluster.produced[-1].name[1:] == ((0, 1) if generation == 1 else (1, 0))
    assert len(cluster.all(InitProducerIdRequest)) == 1


@scripted()
async def test_first_generation_an_abort_with_batches_in_doubt_asks_for_another_epoch(
    cluster: ScriptedCluster,
) -> None:
    cluster.first_generation()
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        cluster.skip(ProduceRequest)
        doubtful = await producer.send("t", b"1")
        asked = await cluster.next(ProduceRequest)
        aborting = asyncio.create_task(producer.abort())
        await asyncio.sleep(0.1)
        asked.cut()
        cluster.release(ProduceRequest)
        await aborting
        assert doubtful.exception() is not None
        assert cluster.kinds[-2:] == ["EndTxn", "InitProducerId"] or cluster.kinds[-1] == "InitProducerId"
        again = cluster.all(InitProducerIdRequest)[-1]
        assert (again.body.producer_id, again.body.producer_epoch) == (cluster.produced[0].producer_id, 0)
        await producer.begin()
        await producer.send_and_wait("t", b"2")
        await producer.commit()
    assert cluster.produced[-1].name[1:] == (1, 0)


@scripted()
async def test_second_generation_an_abort_with_batches_in_doubt_needs_no_other_epoch_than_the_ends(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        cluster.skip(ProduceRequest)
        await producer.send("t", b"1")
        asked = await cluster.next(ProduceRequest)
        aborting = asyncio.create_task(producer.abort())
        await asyncio.sleep(0.1)
        asked.cut()
        cluster.release(ProduceRequest)
        await aborting
        await producer.begin()
        await producer.send_and_wait("t", b"2")
        await producer.commit()
    assert cluster.produced[-1].name[1:] == (1, 0)
    assert len(cluster.all(InitProducerIdRequest)) == 1


@scripted()
async def test_first_generation_an_epoch_is_asked_for_once_for_each_gap(cluster: ScriptedCluster) -> None:
    cluster.first_generation()
    cluster.topic("t", [1, 1])
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.hold(ProduceRequest)
        await producer.send("t", b"1", partition=0)
        asked = await cluster.next(ProduceRequest)
        aborting = asyncio.create_task(producer.abort())
        await asyncio.sleep(0.1)
        asked.cut()
        cluster.release(ProduceRequest)
        await aborting
        for _ in range(3):
            await producer.begin()
            await producer.send_and_wait("t", b"2", partition=1)
            await producer.abort()
    assert len(cluster.all(InitProducerIdRequest)) == 2


@scripted()
async def test_first_generation_an_abort_before_anything_joined_gets_over_the_brokers_refusal(
    cluster: ScriptedCluster,
) -> None:
    cluster.first_generation()
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.hold(AddPartitionsToTxnRequest)
        await producer.send("t", b"1")
        joining = await cluster.next(AddPartitionsToTxnRequest)
        aborting = asyncio.create_task(producer.abort())
        await asyncio.sleep(1)
        assert not cluster.all(EndTxnRequest), "the partition may be joining"
        joining.answer(add_partitions_answer(joining, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        cluster.release(AddPartitionsToTxnRequest)
        cluster.rules[EndTxnRequest] = lambda asked: EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        await aborting
        cluster.release(EndTxnRequest)
        await producer.begin()
        await producer.send_and_wait("t", b"2")
        await producer.commit()
    assert cluster.logs("t") == [b"2"]
    assert cluster.produced[-1].name[1:] == (1, 0)


@scripted()
async def test_an_abort_whose_answer_does_not_come_can_be_called_again(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID, max_block_ms=5000) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"1")
        cluster.hold(EndTxnRequest)
        with pytest.raises(Exception, match="did not answer in time"):
            await producer.abort()
        with pytest.raises(IllegalState, match="call abort again"):
            await producer.begin()
        with pytest.raises(IllegalState, match="call abort again"):
            await producer.send("t", b"2")
        cluster.release(EndTxnRequest)
        cluster.node(1).cut_all()
        await producer.abort()
        await producer.begin()
        await producer.send_and_wait("t", b"2")


@scripted()
async def test_what_is_too_large_while_the_transaction_is_aborted_is_not_split_into_the_next_one(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID, linger_ms=10) as producer:
        await producer.begin()
        cluster.hold(ProduceRequest)
        deliveries = [await producer.send("t", b"1"), await producer.send("t", b"2")]
        asked = await cluster.next(ProduceRequest)
        aborting = asyncio.create_task(producer.abort())
        await asyncio.sleep(0.1)
        asked.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        cluster.release(ProduceRequest)
        await aborting
        assert all(delivery.done() for delivery in deliveries)
        await producer.begin()
        await producer.send("t", b"3")
        await producer.commit()
        assert producer._accumulator.used_bytes == 0
    assert cluster.logs("t") == [b"3"]


@scripted()
async def test_a_record_in_the_next_transaction_does_not_join_a_batch_of_the_aborted_one(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID, linger_ms=1000) as producer:
        await producer.begin()
        aborted = await producer.send("t", b"1")
        await producer.abort()
        await producer.begin()
        sent = await producer.send("t", b"2")
        await producer.commit()
        assert isinstance(aborted.exception(), TransactionFailed)
        assert sent.result().offset == 0
    assert cluster.logs("t") == [b"2"]


# -- offsets


@scripted()
async def test_second_generation_offsets_join_by_themselves(cluster: ScriptedCluster) -> None:
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        group = GroupIdentity("readers", 5, "member", "instance")
        await producer.send_offsets_to_transaction({PARTITION: OffsetAndMetadata(7, "note", 2)}, group)
        await producer.commit()
    assert cluster.kinds == ["FindCoordinator", "InitProducerId", "FindCoordinator", "TxnOffsetCommit", "EndTxn"]
    (asked,) = cluster.all(TxnOffsetCommitRequest)
    body = asked.body
    assert asked.version == 5
    assert (body.transactional_id, body.group_id, body.producer_epoch) == ("payments", "readers", 0)
    assert (body.generation_id, body.member_id, body.group_instance_id) == (5, "member", "instance")
    (entry,) = body.topics[0].partitions
    assert body.topics[0].name == "in"
    assert (entry.partition_index, entry.committed_offset, entry.committed_metadata, entry.committed_leader_epoch) == (
        3,
        7,
        "note",
        2,
    )


@scripted()
async def test_first_generation_the_group_is_added_before_its_offsets(cluster: ScriptedCluster) -> None:
    cluster.first_generation()
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send_offsets_to_transaction({PARTITION: 7}, "readers")
        await producer.commit()
    assert [kind for kind in cluster.kinds if kind != "FindCoordinator"] == [
        "InitProducerId",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    ]
    assert cluster.all(AddOffsetsToTxnRequest)[0].body.group_id == "readers"
    assert cluster.all(TxnOffsetCommitRequest)[0].version == 4


@scripted()
async def test_offsets_of_a_consumer_that_commits_by_itself_are_refused(cluster: ScriptedCluster) -> None:
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        with pytest.raises(BadSetting, match=r"enable_auto_commit=True.*send_offsets_to_transaction") as caught:
            await producer.send_offsets_to_transaction({PARTITION: 7}, GroupIdentity("readers", auto_commits=True))
        assert "'readers'" in str(caught.value)
        await producer.commit()


@scripted()
async def test_a_consumer_that_is_out_of_its_group_commits_nothing(cluster: ScriptedCluster) -> None:
    """With no member named, a broker takes the offsets from anybody: two readers of one partition could both commit."""
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        with pytest.raises(CommitFailed, match="not a member of group 'readers'"):
            await producer.send_offsets_to_transaction({PARTITION: 7}, GroupIdentity("readers", is_outside=True))
        with pytest.raises(CommitFailed):
            await producer.commit()
        await producer.abort()
    assert not cluster.all(TxnOffsetCommitRequest)


@scripted()
async def test_a_commit_waits_for_offsets_that_are_being_sent(cluster: ScriptedCluster) -> None:
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.hold(TxnOffsetCommitRequest)
        sending = asyncio.create_task(producer.send_offsets_to_transaction({PARTITION: 7}, "readers"))
        asked = await cluster.next(TxnOffsetCommitRequest)
        committing = asyncio.create_task(producer.commit())
        await asyncio.sleep(1)
        assert not cluster.all(EndTxnRequest)
        asked.answer(commit_offsets_answer(asked))
        await asyncio.gather(sending, committing)
    assert cluster.kinds[-1] == "EndTxn"


@scripted()
async def test_offsets_outside_of_a_transaction_are_refused(cluster: ScriptedCluster) -> None:
    async with cluster.producer(**ID) as producer:
        with pytest.raises(IllegalState, match="init_transactions first"):
            await producer.send_offsets_to_transaction({PARTITION: 7}, "readers")
        await producer.init_transactions()
        with pytest.raises(IllegalState, match="begin first"):
            await producer.send_offsets_to_transaction({PARTITION: 7}, "readers")


# -- calls that do not fit


@scripted()
async def test_a_producer_without_a_transactional_id_has_no_transactions(cluster: ScriptedCluster) -> None:
    async with cluster.producer() as producer:
        for call in transactional_calls(producer):
            with pytest.raises(IllegalState, match="transactional_id"):
                await call
        with pytest.raises(IllegalState, match="transactional_id"):
            async with producer.transaction():
                pass


def transactional_calls(producer: Producer) -> list[Any]:
    return [
        producer.init_transactions(),
        producer.begin(),
        producer.commit(),
        producer.abort(),
        producer.send_offsets_to_transaction({PARTITION: 7}, "readers"),
    ]


@scripted()
async def test_calls_in_the_wrong_order_say_what_is_allowed(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        for call in (producer.commit(), producer.abort(), producer.send("t", b"x")):
            with pytest.raises(IllegalState, match="call init_transactions first"):
                await call
        await producer.init_transactions()
        with pytest.raises(IllegalState, match="init_transactions is not possible now"):
            await producer.init_transactions()
        for call in (producer.commit(), producer.abort(), producer.send("t", b"x")):
            with pytest.raises(IllegalState, match="no transaction is open: call begin first"):
                await call
        await producer.begin()
        with pytest.raises(IllegalState, match="a transaction is open: commit or abort it first"):
            await producer.begin()
        await producer.commit()


@scripted()
async def test_begin_takes_over_the_transactional_id_by_itself(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"x")
        await producer.commit()
    assert len(cluster.all(InitProducerIdRequest)) == 1
