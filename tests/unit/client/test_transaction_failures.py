"""What goes wrong in a transaction: which errors end it, which end the producer, and what each later call says."""

from __future__ import annotations

import asyncio

import pytest
from producer_steps import refusing, state_of
from transaction_failures import BREAKING, FAILING, ID, PARTITION, every_call_raises

from scripted_answers import add_partitions_answer, commit_offsets_answer
from scripted_broker import ScriptedCluster, scripted
from semel.client.errors import (
    AbortTransactionError,
    BrokerRefused,
    CommitFailed,
    DeliveryTimedOut,
    FencedInstance,
    NotAuthorised,
    ProducerFenced,
    ProducerFencedOrTimedOut,
    RestartProducerError,
    SemelError,
    TimedOut,
    TransactionalIdExpired,
    TransactionFailed,
    TransactionTimedOut,
)
from semel.client.producer.transactions import State
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from semel.wire.spec.add_partitions_to_txn import AddPartitionsToTxnRequest
from semel.wire.spec.end_txn import EndTxnRequest, EndTxnResponse
from semel.wire.spec.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.produce import ProduceRequest
from semel.wire.spec.txn_offset_commit import TxnOffsetCommitRequest

# -- a batch that is refused


@pytest.mark.parametrize(("code", "kind"), FAILING)
@scripted()
async def test_a_refused_batch_ends_the_transaction_and_an_abort_begins_anew(
    cluster: ScriptedCluster, code: int, kind: type[SemelError]
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID, linger_ms=0, batch_size=1) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        cluster.skip(ProduceRequest)
        first, second = await producer.send("t", b"1"), await producer.send("t", b"2")
        (await cluster.next(ProduceRequest)).refuse(code)
        with pytest.raises(kind):
            await first
        assert state_of(producer) is State.FAILED
        later = await cluster.next(ProduceRequest)
        for call in (
            producer.send("t", b"3"),
            producer.send_offsets_to_transaction({PARTITION: 1}, "g"),
            producer.begin(),
        ):
            with pytest.raises(AbortTransactionError) as caught:
                await call
            assert caught.value is first.exception() or caught.value.__cause__ is first.exception()
        later.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        with pytest.raises(SemelError):
            await second
        with pytest.raises(AbortTransactionError):
            await producer.commit()
        cluster.release(ProduceRequest)
        await producer.abort()
        assert state_of(producer) is State.READY
        await producer.begin()
        await producer.send("t", b"4")
        await producer.commit()
    assert cluster.logs("t") == [b"0", b"4"]
    assert [asked.body.committed for asked in cluster.all(EndTxnRequest)] == [False, True]


@pytest.mark.parametrize(("code", "kind"), BREAKING)
@scripted()
async def test_a_refusal_that_ends_the_producer_is_raised_by_every_call(
    cluster: ScriptedCluster, code: int, kind: type[SemelError]
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.rules[ProduceRequest] = refusing(code)
        with pytest.raises(kind):
            await producer.send_and_wait("t", b"1")
        assert state_of(producer) is State.BROKEN
        await every_call_raises(producer, kind)
        await producer.flush()
        began_s = cluster.loop.time()
    assert cluster.loop.time() - began_s < 1
    assert cluster.all(EndTxnRequest) == []


@scripted()
async def test_a_commit_that_finds_a_failed_batch_raises_why_and_sends_no_end(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.rules[ProduceRequest] = refusing(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        await producer.send("t", b"1")
        with pytest.raises(TransactionFailed, match="TOPIC_AUTHORIZATION_FAILED") as caught:
            await producer.commit()
        assert isinstance(caught.value.__cause__, NotAuthorised)
        assert state_of(producer) is State.FAILED
        with pytest.raises(TransactionFailed):
            await producer.commit()
        cluster.release(ProduceRequest)
        await producer.abort()
    assert [asked.body.committed for asked in cluster.all(EndTxnRequest)] == [False]


@scripted()
async def test_an_expired_batch_ends_the_transaction(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    settings = {**ID, "delivery_timeout_ms": 8_000, "request_timeout_ms": 3_000}
    async with cluster.producer(**settings) as producer:
        await producer.begin()
        cluster.rules[ProduceRequest] = refusing(ErrorCode.NOT_ENOUGH_REPLICAS)
        await producer.send("t", b"1")
        with pytest.raises(TransactionFailed) as caught:
            await producer.commit()
        assert isinstance(caught.value.__cause__, DeliveryTimedOut)
        assert cluster.loop.time() == pytest.approx(8, abs=0.1)
        cluster.release(ProduceRequest)
        await producer.abort()
        await producer.begin()
        await producer.send("t", b"2")
        await producer.commit()
    assert cluster.logs("t") == [b"2"]


@scripted()
async def test_what_waits_when_the_transaction_fails_is_not_sent(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    settings = {**ID, "linger_ms": 500}
    async with cluster.producer(**settings) as producer:
        await producer.begin()
        waiting = await producer.send("t", b"1", partition=1)
        cluster.rules[ProduceRequest] = refusing(ErrorCode.INVALID_RECORD)
        await producer.send("t", b"x" * 20_000, partition=0)
        await producer.send("t", b"0", partition=0)
        await asyncio.sleep(0.1)
        assert state_of(producer) is State.FAILED
        assert isinstance(waiting.exception(), AbortTransactionError)
        cluster.release(ProduceRequest)
        await producer.abort()
    assert cluster.logs("t", 1) == []


@scripted()
async def test_what_could_be_sent_in_the_moment_the_transaction_fails_is_not(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [-1, 1])
    settings = {**ID, "delivery_timeout_ms": 8_000, "request_timeout_ms": 3_000, "linger_ms": 5}
    async with cluster.producer(**settings) as producer:
        await producer.begin()
        doomed = await producer.send("t", b"0", partition=0)
        await asyncio.sleep(7.995 - cluster.loop.time())
        ready = await producer.send("t", b"1", partition=1)
        await asyncio.sleep(1)
        assert isinstance(doomed.exception(), DeliveryTimedOut)
        assert isinstance(ready.exception(), TransactionFailed)
        assert cluster.produced == []
        await producer.abort()


# -- time


@pytest.mark.parametrize(
    ("code", "seconds", "kind"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, 1, ProducerFenced),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 61, ProducerFencedOrTimedOut),
        (ErrorCode.PRODUCER_FENCED, 1, ProducerFenced),
        (ErrorCode.PRODUCER_FENCED, 61, ProducerFencedOrTimedOut),
        (ErrorCode.TRANSACTION_ABORTABLE, 1, AbortTransactionError),
        (ErrorCode.TRANSACTION_ABORTABLE, 61, TransactionTimedOut),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 61, TransactionalIdExpired),
    ],
)
@scripted()
async def test_fenced_timed_out_and_expired_are_told_apart_as_far_as_the_broker_allows(
    cluster: ScriptedCluster, code: int, seconds: int, kind: type[SemelError]
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await asyncio.sleep(100)  # before its first record a transaction has not begun for the broker
        await producer.send_and_wait("t", b"1")
        await asyncio.sleep(seconds)
        cluster.rules[EndTxnRequest] = lambda asked: EndTxnResponse(error_code=code)
        with pytest.raises(SemelError) as caught:
            await producer.commit()
        assert type(caught.value) is kind
        assert caught.value.code == code
        is_broken = issubclass(kind, RestartProducerError)
        assert state_of(producer) is (State.BROKEN if is_broken else State.FAILED)
        cluster.release(EndTxnRequest)
        if not is_broken:
            await producer.abort()
            await producer.begin()
            await producer.send_and_wait("t", b"2")


# -- taking over


@pytest.mark.parametrize(("code", "kind"), BREAKING)
@scripted()
async def test_a_transactional_id_that_cannot_be_taken_over_breaks_the_producer(
    cluster: ScriptedCluster, code: int, kind: type[SemelError]
) -> None:
    cluster.rules[InitProducerIdRequest] = lambda asked: InitProducerIdResponse(error_code=code)
    async with cluster.producer(**ID) as producer:
        with pytest.raises(kind):
            await producer.init_transactions()
        assert state_of(producer) is State.BROKEN
        await every_call_raises(producer, kind)


@scripted()
async def test_a_setting_that_the_broker_refuses_is_told(cluster: ScriptedCluster) -> None:
    cluster.rules[InitProducerIdRequest] = lambda asked: InitProducerIdResponse(
        error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT
    )
    async with cluster.producer(**ID) as producer:
        with pytest.raises(BrokerRefused, match=r"'payments'.*INVALID_TRANSACTION_TIMEOUT"):
            await producer.begin()
        assert state_of(producer) is State.UNINITIALISED


@scripted()
async def test_taking_over_is_tried_until_max_block_and_can_be_tried_again(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.rules[InitProducerIdRequest] = lambda asked: InitProducerIdResponse(
        error_code=ErrorCode.CONCURRENT_TRANSACTIONS
    )
    async with cluster.producer(**ID, max_block_ms=5_000) as producer:
        with pytest.raises(TimedOut, match="CONCURRENT_TRANSACTIONS"):
            await producer.init_transactions()
        assert cluster.loop.time() <= 5
        cluster.release(InitProducerIdRequest)
        await producer.init_transactions()
        await producer.begin()
        await producer.send_and_wait("t", b"1")


@scripted()
async def test_nobody_is_allowed_to_know_the_coordinator(cluster: ScriptedCluster) -> None:
    cluster.rules[FindCoordinatorRequest] = lambda asked: FindCoordinatorResponse(
        coordinators=[
            Coordinator(key="payments", node_id=-1, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        ]
    )
    async with cluster.producer(**ID) as producer:
        with pytest.raises(NotAuthorised):
            await producer.begin()
        assert state_of(producer) is State.BROKEN


# -- partitions that cannot join


@pytest.mark.parametrize(("code", "kind"), [*BREAKING, (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NotAuthorised)])
@scripted()
async def test_first_generation_a_partition_that_may_not_join_fails_its_records(
    cluster: ScriptedCluster, code: int, kind: type[SemelError]
) -> None:
    cluster.first_generation()
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.rules[AddPartitionsToTxnRequest] = lambda asked: add_partitions_answer(asked, code)
        delivery = await producer.send("t", b"1")
        with pytest.raises(SemelError) as caught:
            await delivery
        assert isinstance(caught.value, kind) or isinstance(caught.value.__cause__, kind)
        is_broken = (code, kind) in BREAKING
        assert state_of(producer) is (State.BROKEN if is_broken else State.FAILED)
    assert cluster.produced == []


@scripted()
async def test_first_generation_joining_is_tried_again_while_it_may_succeed(cluster: ScriptedCluster) -> None:
    cluster.first_generation()
    cluster.topic("t")
    codes = iter([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE])
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.rules[AddPartitionsToTxnRequest] = lambda asked: add_partitions_answer(asked, next(codes))
        await producer.send_and_wait("t", b"1")
        await producer.commit()
    assert cluster.logs("t") == [b"1"]


# -- offsets


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.ILLEGAL_GENERATION, CommitFailed),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailed),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstance),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, NotAuthorised),
        (ErrorCode.TRANSACTION_ABORTABLE, AbortTransactionError),
        *BREAKING[:4],
    ],
)
@scripted()
async def test_offsets_that_are_refused_end_the_transaction_or_the_producer(
    cluster: ScriptedCluster, code: int, kind: type[SemelError]
) -> None:
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.rules[TxnOffsetCommitRequest] = lambda asked: commit_offsets_answer(asked, code)
        with pytest.raises(kind):
            await producer.send_offsets_to_transaction({PARTITION: 7}, "readers")
        is_broken = (code, kind) in BREAKING
        assert state_of(producer) is (State.BROKEN if is_broken else State.FAILED)
        with pytest.raises(SemelError) as caught:
            await producer.commit()
        assert isinstance(caught.value, kind | TransactionFailed)
        cluster.release(TxnOffsetCommitRequest)
        if not is_broken:
            await producer.abort()
            await producer.begin()
            await producer.send_offsets_to_transaction({PARTITION: 7}, "readers")
            await producer.commit()


@scripted()
async def test_first_generation_a_failed_transaction_is_followed_by_another_epoch(cluster: ScriptedCluster) -> None:
    """Offsets that were sent may arrive late: they must not count for the next transaction."""
    cluster.first_generation()
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.rules[TxnOffsetCommitRequest] = lambda asked: commit_offsets_answer(asked, ErrorCode.ILLEGAL_GENERATION)
        with pytest.raises(CommitFailed):
            await producer.send_offsets_to_transaction({PARTITION: 7}, "readers")
        await producer.abort()
        cluster.release(TxnOffsetCommitRequest)
        await producer.begin()
        await producer.send_offsets_to_transaction({PARTITION: 7}, "readers")
        await producer.commit()
    assert [asked.body.producer_epoch for asked in cluster.all(TxnOffsetCommitRequest)] == [0, 1]


@scripted()
async def test_first_generation_a_group_that_may_not_be_added_ends_the_transaction(cluster: ScriptedCluster) -> None:
    cluster.first_generation()
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.rules[AddOffsetsToTxnRequest] = lambda asked: AddOffsetsToTxnResponse(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
        )
        with pytest.raises(NotAuthorised):
            await producer.send_offsets_to_transaction({PARTITION: 7}, "readers")
        assert state_of(producer) is State.FAILED
    assert cluster.all(TxnOffsetCommitRequest) == []


@scripted()
async def test_offsets_are_tried_again_while_they_may_succeed(cluster: ScriptedCluster) -> None:
    codes = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE])
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.rules[TxnOffsetCommitRequest] = lambda asked: commit_offsets_answer(asked, next(codes))
        await producer.send_offsets_to_transaction({PARTITION: 7}, "readers")
        await producer.commit()
