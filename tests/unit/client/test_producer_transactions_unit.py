"""Transactions of one producer: the table of states, and which requests go out, in which order, in both generations."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest

from scripted_answers import add_partitions_answer, commit_offsets_answer
from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import BadSetting, CommitFailed, IllegalState, TransactionFailed
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.client.producer.settings import ProducerSettings
from semel.client.producer.transaction_requests import add_partitions_code, commit_offsets_code
from semel.client.producer.transactions import MOVES, Event, State, Transactions
from semel.client.settings import load
from semel.client.values import GroupIdentity, OffsetAndMetadata
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_offsets_to_txn import AddOffsetsToTxnRequest
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
    TxnOffsetCommitRequest,
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
