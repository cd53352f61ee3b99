"""Transactions of one producer: the table of states, and which requests go out, in which order, in both generations."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest

from scripted_answers import add_partitions_answer
from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import IllegalState, TransactionFailed
from semel.client.metadata import TopicPartition
from semel.client.producer.settings import ProducerSettings
from semel.client.producer.transaction_requests import add_partitions_code, commit_offsets_code
from semel.client.producer.transactions import MOVES, Event, State, Transactions
from semel.client.settings import load
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from semel.wire.spec.end_txn import EndTxnRequest, EndTxnResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.produce import ProduceRequest
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ID = {"transactional_id": "payments"}
ONE_RECORD_EACH: dict[str, Any] = {"batch_size": 1, "linger_ms": 0}
PARTITION = TopicPartition("in", 3)


# -- the table

EXPECTED = {
    (State.UNINITIALISED, Event.INIT): State.READY,
    (State.READY, Event.BEGIN): State.OPEN,
    (State.OPEN, Event.COMMIT): State.COMMITTING,
    (State.OPEN, Event.ABORT): State.ABORTING,
    (State.OPEN, Event.FAIL): State.FAILED,
    (State.COMMITTING, Event.COMMIT): State.COMMITTING,
    (State.COMMITTING, Event.ENDED): State.READY,
    (State.COMMITTING, Event.FAIL): State.FAILED,
    (State.FAILED, Event.ABORT): State.ABORTING,
    (State.FAILED, Event.FAIL): State.FAILED,
    (State.ABORTING, Event.ABORT): State.ABORTING,
    (State.ABORTING, Event.ENDED): State.READY,
    (State.ABORTING, Event.FAIL): State.ABORTING,
}


@pytest.mark.parametrize(("state", "event"), product(State, Event))
@scripted()
async def test_every_event_in_every_state_moves_as_the_table_says_or_is_refused(
    cluster: ScriptedCluster, state: State, event: Event
) -> None:
    transactions = Transactions(cluster.host(), None, load(ProducerSettings, ID))  # type: ignore[arg-type]
    failure = TransactionFailed("this is why")
    transactions.state, transactions._failure = state, failure
    expected = EXPECTED.get((state, event))
    assert MOVES.get((state, event)) == expected
    if expected is not None:
        transactions.move(event)
        assert transactions.state is expected
    elif state in (State.FAILED, State.BROKEN):
        with pytest.raises(TransactionFailed, match="this is why"):
            transactions.move(event)
        assert transactions.state is state
    else:
        with pytest.raises(IllegalState, match=f"{event.value} is not possible now: .*(first|again)"):
            transactions.move(event)
        assert transactions.state is state


@pytest.mark.parametrize("state", State)
@scripted()
async def test_records_are_taken_in_an_open_transaction_only(cluster: ScriptedCluster, state: State) -> None:
    transactions = Transactions(cluster.host(), None, load(ProducerSettings, ID))  # type: ignore[arg-type]
    transactions.state, transactions._failure = state, TransactionFailed("this is why")
    if state is State.OPEN:
        transactions.check_may_write()
        return
    kind = TransactionFailed if state in (State.FAILED, State.BROKEN) else IllegalState
    with pytest.raises(kind):
        transactions.check_may_write()


NONE, PASSING, FINAL, OTHER = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([], NONE),
        ([NONE, NONE], NONE),
        ([NONE, PASSING], PASSING),
        ([PASSING, FINAL, NONE], FINAL),
        ([OTHER, PASSING, OTHER], PASSING),
        ([OTHER, FINAL, OTHER], FINAL),
        ([OTHER, OTHER], OTHER),
    ],
)
def test_an_answer_about_many_partitions_comes_down_to_what_has_to_be_done(codes: list[int], worst: int) -> None:
    joined = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name="t", results_by_partition=[AddPartitionsToTxnPartitionResult(partition_error_code=code)]
            )
            for code in codes
        ]
    )
    committed = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(partitions=[TxnOffsetCommitResponsePartition(error_code=code)])
            for code in codes
        ]
    )
    assert add_partitions_code(joined) == commit_offsets_code(committed) == worst


# -- the second generation


@scripted()
async def test_second_generation_partitions_join_with_their_first_batch(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    async with cluster.producer(**ID, transaction_timeout_ms=7000) as producer:
        await producer.begin()
        await producer.send("t", b"0", partition=0)
        await producer.send("t", b"1", partition=1)
        await producer.commit()
    assert cluster.kinds[:2] == ["FindCoordinator", "InitProducerId"]
    assert set(cluster.kinds[2:-1]) == {"Produce"}
    assert cluster.kinds[-1] == "EndTxn"
    (init,) = cluster.all(InitProducerIdRequest)
    assert (init.body.transactional_id, init.body.transaction_timeout_ms) == ("payments", 7000)
    assert (init.body.producer_id, init.body.producer_epoch) == (-1, -1)
    for asked in cluster.all(ProduceRequest):
        assert asked.version >= 12
        assert asked.body.transactional_id == "payments"
        assert all(batch.is_transactional for batch in asked.sent)
    (end,) = cluster.all(EndTxnRequest)
    assert (end.version, end.body.committed, end.body.producer_epoch) == (5, True, 0)


@scripted()
async def test_second_generation_the_end_raises_the_epoch_and_sequences_begin_again(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID, **ONE_RECORD_EACH) as producer:
        for end in (producer.commit, producer.abort, producer.commit):
            await producer.begin()
            await producer.send_and_wait("t", b"1")
            await producer.send_and_wait("t", b"2")
            await end()
    assert [batch.name[1:] for batch in cluster.produced] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    ends = cluster.all(EndTxnRequest)
    assert [(end.body.producer_epoch, end.body.committed) for end in ends] == [(0, True), (1, False), (2, True)]
    assert len(cluster.all(InitProducerIdRequest)) == 1


@scripted()
async def test_second_generation_another_producer_id_may_come_with_the_end(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send("t", b"1")
        cluster.rules[EndTxnRequest] = lambda asked: EndTxnResponse(producer_id=77, producer_epoch=0)
        await producer.commit()
        await producer.begin()
        await producer.send_and_wait("t", b"2")
    assert cluster.produced[-1].name == (77, 0, 0)


@scripted()
async def test_second_generation_needs_the_feature_and_every_version(cluster: ScriptedCluster) -> None:
    for limits, features, is_second in (
        ({}, {"transaction.version": 2}, True),
        ({}, {"transaction.version": 1}, False),
        ({}, {}, False),
        ({0: (0, 11)}, {"transaction.version": 2}, False),
        ({26: (0, 4)}, {"transaction.version": 2}, False),
        ({28: (0, 4)}, {"transaction.version": 2}, False),
    ):
        cluster.limits, cluster.features = dict(limits), dict(features)
        async with cluster.producer(**ID) as producer:
            await producer.init_transactions()
            assert producer._transactions is not None
            assert producer._transactions.is_second_generation is is_second


# -- the first generation


@scripted()
async def test_first_generation_partitions_join_before_anything_is_sent_to_them(cluster: ScriptedCluster) -> None:
    cluster.first_generation()
    cluster.topic("t", [1, 1])
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.hold(AddPartitionsToTxnRequest)
        delivery = await producer.send("t", b"0", partition=0)
        joining = await cluster.next(AddPartitionsToTxnRequest)
        await asyncio.sleep(1)
        assert cluster.produced == []
        joining.answer(add_partitions_answer(joining))
        cluster.release(AddPartitionsToTxnRequest)
        await delivery
        await producer.send_and_wait("t", b"1", partition=0)
        await producer.send_and_wait("t", b"2", partition=1)
        await producer.commit()
    assert cluster.kinds == [
        "FindCoordinator",
        "InitProducerId",
        "AddPartitionsToTxn",
        "Produce",
        "Produce",
        "AddPartitionsToTxn",
        "Produce",
        "EndTxn",
    ]
    assert joining.version == 3
    assert joining.body.v3_and_below_transactional_id == "payments"
    assert max(asked.version for asked in cluster.all(ProduceRequest)) == 11
    assert cluster.all(EndTxnRequest)[0].version == 4


@scripted()
async def test_first_generation_partitions_that_come_while_others_join_are_next_together(
    cluster: ScriptedCluster,
) -> None:
    cluster.first_generation()
    cluster.topic("t", [1, 1, 1])
    cluster.topic("u")
    async with cluster.producer(**ID, linger_ms=20) as producer:
        await producer.begin()
        await producer.partitions_for("u")
        cluster.hold(AddPartitionsToTxnRequest)
        for topic, partition in (("t", 0), ("t", 2), ("u", 0)):
            await producer.send(topic, b"x", partition=partition)
        first = await cluster.next(AddPartitionsToTxnRequest)
        await asyncio.sleep(1)
        first.answer(add_partitions_answer(first))
        cluster.release(AddPartitionsToTxnRequest)
        await producer.commit()
    assert [joined_by(asked) for asked in cluster.all(AddPartitionsToTxnRequest)] == [
        {("t", 0)},
        {("t", 2), ("u", 0)},
    ]


def joined_by(asked: Asked) -> set[tuple[str, int]]:
    return {(topic.name, number) for topic in asked.body.v3_and_below_topics for number in topic.partitions}


@scripted()
async def test_first_generation_epoch_stays_sequences_go_on_and_partitions_join_again(
    cluster: ScriptedCluster,
) -> None:
    cluster.first_generation()
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        for end in (producer.commit, producer.abort, producer.commit):
            await producer.begin()
            await producer.send_and_wait("t", b"1")
            await end()
    assert [batch.name[1:] for batch in cluster.produced] == [(0, 0), (0, 1), (0, 2)]
    assert len(cluster.all(AddPartitionsToTxnRequest)) == 3
    assert len(cluster.all(InitProducerIdRequest)) == 1


# -- the end


@pytest.mark.parametrize("generation", [1, 2])
@scripted()
async def test_the_end_comes_after_everything_is_written(cluster: ScriptedCluster, generation: int) -> None:
    if generation == 1:
        cluster.first_generation()
    cluster.topic("t")
    async with cluster.producer(**ID, **ONE_RECORD_EACH) as producer:
        await producer.begin()
        cluster.hold(ProduceRequest)
        for value in (b"1", b"2"):
            await producer.send("t", value)
        committing = asyncio.create_task(producer.commit())
        first = await cluster.next(ProduceRequest)
        await asyncio.sleep(1)
        assert not cluster.all(EndTxnRequest)
        first.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        (await cluster.next(ProduceRequest)).accept()  # the second one: out of order
        cluster.release(ProduceRequest)
        await committing
    assert cluster.logs("t") == [b"1", b"2"]
    assert cluster.kinds[-1] == "EndTxn"


@pytest.mark.parametrize("generation", [1, 2])
@scripted()
async def test_an_empty_transaction_sends_no_end(cluster: ScriptedCluster, generation: int) -> None:
    if generation == 1:
        cluster.first_generation()
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.commit()
        await producer.begin()
        await producer.abort()
        await producer.begin()
        await producer.send_offsets_to_transaction({}, "group")
        await producer.commit()
    assert cluster.kinds == ["FindCoordinator", "InitProducerId"]


@pytest.mark.parametrize("generation", [1, 2])
@scripted()
async def test_the_end_is_asked_for_again_when_its_answer_was_lost(cluster: ScriptedCluster, generation: int) -> None:
    if generation == 1:
        cluster.first_generation()
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send("t", b"1")
        cluster.hold(EndTxnRequest)
        committing = asyncio.create_task(producer.commit())
        (await cluster.next(EndTxnRequest)).cut()
        cluster.release(EndTxnRequest)
        await committing
        ends = cluster.all(EndTxnRequest)
        assert len(ends) == 2
        assert ends[0].body == ends[1].body
        await producer.begin()
        await producer.send_and_wait("t", b"2")
    assert cluster.produced[-1].name[1:] == ((0, 1) if generation == 1 else (1, 0))


@scripted()
async def test_the_end_waits_while_the_last_transaction_is_still_being_ended(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send("t", b"1")
        left = 3

        def busy(asked: Asked) -> EndTxnResponse:
            nonlocal left
            left -= 1
            code = ErrorCode.CONCURRENT_TRANSACTIONS if left >= 0 else ErrorCode.NONE
            return EndTxnResponse(error_code=code, producer_id=asked.body.producer_id, producer_epoch=1)

        cluster.rules[EndTxnRequest] = busy
        await producer.commit()
    assert len(cluster.all(EndTxnRequest)) == 4


@scripted(nodes=2)
async def test_a_coordinator_that_has_moved_is_looked_for_again(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send("t", b"1")
        cluster.coordinator_id = 2
        cluster.node(1).rules[EndTxnRequest] = lambda asked: EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
        await producer.commit()
    assert [asked.broker.node_id for asked in cluster.all(EndTxnRequest)] == [1, 2]
