"""How transactions end when things go wrong: commits in doubt, blocks, and closed producers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from producer_steps import refusing, state_of
from transaction_failures import BREAKING, ID, every_call_raises

from scripted_broker import ScriptedCluster, scripted
from semel.client.errors import (
    BadRecord,
    Closed,
    NotAuthorised,
    ProducerFenced,
    SemelError,
    TimedOut,
)
from semel.client.producer.producer import Producer
from semel.client.producer.transactions import State
from semel.wire.errors import ErrorCode
from semel.wire.spec.end_txn import EndTxnRequest, EndTxnResponse
from semel.wire.spec.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from semel.wire.spec.produce import ProduceRequest

# -- the end


@scripted()
async def test_a_commit_whose_outcome_is_not_known_can_only_be_called_again(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID, max_block_ms=5_000) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"1")
        cluster.hold(EndTxnRequest)
        with pytest.raises(TimedOut, match="'payments' did not answer in time"):
            await producer.commit()
        assert state_of(producer) is State.COMMITTING
        for call in (producer.abort(), producer.begin(), producer.send("t", b"2")):
            with pytest.raises(SemelError, match="call commit again"):
                await call
        cluster.release(EndTxnRequest)
        cluster.node(1).cut_all()
        await producer.commit()
        assert state_of(producer) is State.READY
        await producer.begin()
        await producer.send_and_wait("t", b"2")
        await producer.commit()
    assert cluster.logs("t") == [b"1", b"2"]


@pytest.mark.parametrize("held", [ProduceRequest, EndTxnRequest])
@scripted()
async def test_a_commit_that_is_cancelled_can_be_called_again(cluster: ScriptedCluster, held: Any) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        cluster.hold(held)
        await producer.send("t", b"1")
        committing = asyncio.create_task(producer.commit())
        asked = await cluster.next(held)
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        assert committing.cancelled()
        assert state_of(producer) is State.COMMITTING
        cluster.release(held)
        asked.cut()
        await producer.commit()
        assert state_of(producer) is State.READY
    assert cluster.logs("t") == [b"1"]


@pytest.mark.parametrize(("code", "kind"), BREAKING)
@scripted()
async def test_an_end_that_is_refused_for_good_breaks_the_producer(
    cluster: ScriptedCluster, code: int, kind: type[SemelError]
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"1")
        cluster.rules[EndTxnRequest] = lambda asked: EndTxnResponse(error_code=code)
        with pytest.raises(kind):
            await producer.commit()
        assert state_of(producer) is State.BROKEN
        await every_call_raises(producer, kind)


@pytest.mark.parametrize("end", ["commit", "abort"])
@scripted()
async def test_an_end_that_the_client_itself_cannot_ask_for_breaks_the_producer(
    cluster: ScriptedCluster, end: str
) -> None:
    """The coordinator moves to a node whose rights say no: no answer to EndTxn, but no use in asking again either."""
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"1")
        cluster.rules[EndTxnRequest] = lambda asked: EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
        cluster.rules[FindCoordinatorRequest] = lambda asked: FindCoordinatorResponse(
            coordinators=[
                Coordinator(key="payments", node_id=-1, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            ]
        )
        with pytest.raises(NotAuthorised):
            await (producer.commit() if end == "commit" else producer.abort())
        assert state_of(producer) is State.BROKEN
        await every_call_raises(producer, NotAuthorised)


# -- the block


async def failing_block(producer: Producer, raised: type[BaseException]) -> None:
    async with producer.transaction():
        await producer.send_and_wait("t", b"1")
        raise raised


@scripted()
async def test_the_block_commits(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        async with producer.transaction() as same:
            assert same is producer
            await producer.send("t", b"1")
        async with producer.transaction():
            await producer.send("t", b"2")
    assert [asked.body.committed for asked in cluster.all(EndTxnRequest)] == [True, True]
    assert cluster.logs("t") == [b"1", b"2"]


@pytest.mark.parametrize("raised", [ZeroDivisionError, asyncio.CancelledError, KeyboardInterrupt])
@scripted()
async def test_the_block_aborts_when_an_exception_leaves_it(
    cluster: ScriptedCluster, raised: type[BaseException]
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        with pytest.raises(raised):
            await failing_block(producer, raised)
        assert state_of(producer) is State.READY
    assert [asked.body.committed for asked in cluster.all(EndTxnRequest)] == [False]


@scripted()
async def test_a_task_that_is_cancelled_in_the_block_aborts(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"1")
                await asyncio.sleep(3600)

        working = asyncio.create_task(work())
        await asyncio.sleep(1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert working.cancelled()
        assert state_of(producer) is State.READY
    assert [asked.body.committed for asked in cluster.all(EndTxnRequest)] == [False]


@scripted()
async def test_a_failure_at_the_commit_of_the_block_aborts_and_is_raised(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        cluster.rules[ProduceRequest] = refusing(ErrorCode.INVALID_RECORD)
        with pytest.raises(BadRecord):
            async with producer.transaction():
                await producer.send("t", b"1")
        assert state_of(producer) is State.READY
        cluster.release(ProduceRequest)
        async with producer.transaction():
            await producer.send("t", b"2")
    assert [asked.body.committed for asked in cluster.all(EndTxnRequest)] == [False, True]


@scripted()
async def test_the_block_asks_for_its_commit_until_the_outcome_is_known(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID, max_block_ms=3_000) as producer:
        cluster.hold(EndTxnRequest)

        async def work() -> None:
            async with producer.transaction():
                await producer.send("t", b"1")

        working = asyncio.create_task(work())
        await asyncio.sleep(20)
        assert not working.done()
        cluster.release(EndTxnRequest)
        cluster.node(1).cut_all()
        await working
    assert {asked.body.committed for asked in cluster.all(EndTxnRequest)} == {True}


@scripted()
async def test_a_block_of_a_broken_producer_raises_and_does_not_abort(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        cluster.rules[ProduceRequest] = refusing(ErrorCode.PRODUCER_FENCED)
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send("t", b"1")
    assert cluster.all(EndTxnRequest) == []


@pytest.mark.parametrize("raised", [ZeroDivisionError, asyncio.CancelledError])
@scripted()
async def test_an_abort_that_fails_does_not_hide_why_the_block_was_left(
    cluster: ScriptedCluster, raised: type[BaseException]
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID, max_block_ms=2_000) as producer:
        cluster.hold(EndTxnRequest)
        with pytest.raises(raised):
            await failing_block(producer, raised)
        assert state_of(producer) is State.ABORTING
        cluster.release(EndTxnRequest)
        cluster.node(1).cut_all()
        await producer.abort()


# -- close


@scripted()
async def test_closing_aborts_what_is_open(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"1")
        waiting = await producer.send("t", b"2")
    assert [asked.body.committed for asked in cluster.all(EndTxnRequest)] == [False]
    assert waiting.done()


@scripted()
async def test_closing_has_its_deadline_in_a_transaction_too(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer(**ID)
    await producer.start()
    await producer.begin()
    await producer.send_and_wait("t", b"1")
    cluster.hold(EndTxnRequest)
    await producer.close(timeout_s=3)
    assert cluster.loop.time() == pytest.approx(3, abs=0.01)


@scripted()
async def test_closing_waits_for_a_commit_that_runs(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer(**ID)
    await producer.start()
    await producer.begin()
    await producer.send_and_wait("t", b"1")
    cluster.hold(EndTxnRequest)
    committing = asyncio.create_task(producer.commit())
    asked = await cluster.next(EndTxnRequest)
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(1)
    assert not closing.done()
    asked.answer(EndTxnResponse(producer_id=asked.body.producer_id, producer_epoch=1))
    await asyncio.gather(committing, closing)
    assert len(cluster.all(EndTxnRequest)) == 1


@scripted()
async def test_closing_waits_for_an_abort_that_runs_and_does_not_ask_twice(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer(**ID)
    await producer.start()
    await producer.begin()
    await producer.send_and_wait("t", b"1")
    cluster.hold(EndTxnRequest)
    aborting = asyncio.create_task(producer.abort())
    asked = await cluster.next(EndTxnRequest)
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(1)
    asked.answer(EndTxnResponse(producer_id=asked.body.producer_id, producer_epoch=1))
    await asyncio.gather(aborting, closing)
    assert len(cluster.all(EndTxnRequest)) == 1


@scripted()
async def test_a_commit_that_waits_when_the_producer_is_closed_is_told_so(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer(**ID)
    await producer.start()
    await producer.begin()
    await producer.send_and_wait("t", b"1")
    cluster.hold(EndTxnRequest)
    committing = asyncio.create_task(producer.commit())
    await cluster.next(EndTxnRequest)
    await producer.close(timeout_s=2)
    with pytest.raises(Closed):
        await committing
