"""Batches whose time is over: in the queue, under way, and when their answers come late."""

from __future__ import annotations

import asyncio

import pytest
from producer_steps import IMPATIENT, fate, fates, refusing, sent_each

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import DeliveryTimedOut, StorageFailed
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.wire.errors import ErrorCode
from semel.wire.spec.produce import ProduceRequest

PERHAPS_WRITTEN = [
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
]


@scripted()
async def test_a_batch_that_expires_unsent_leaves_no_gap(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        await producer.send_and_wait("t", b"1")
        topic.move(0, -1)
        cluster.rules[ProduceRequest] = refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER, 99)
        doomed = await producer.send("t", b"2")
        await cluster.settle()
        began_s = cluster.loop.time()
        unsent = await producer.send("t", b"3")
        with pytest.raises(DeliveryTimedOut, match="may have been written"):
            await doomed
        with pytest.raises(DeliveryTimedOut, match="it was not written"):
            await unsent
        assert cluster.loop.time() - began_s == pytest.approx(8, abs=0.01)


@scripted()
async def test_a_batch_whose_time_is_over_tells_why_its_last_attempt_failed(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        why = "2 of 3 replicas are in sync"
        cluster.rules[ProduceRequest] = refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 1000, error_message=why)
        with pytest.raises(DeliveryTimedOut, match=f"the last attempt: t-0: NOT_ENOUGH_REPLICAS: .*: {why}") as raised:
            await producer.send_and_wait("t", b"1")
        assert raised.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.hold(ProduceRequest)
        delivery = await producer.send("t", b"2")
        (await cluster.next(ProduceRequest)).cut()
        cluster.rules[ProduceRequest] = lambda asked: asked.cut()  # type: ignore[func-returns-value]
        with pytest.raises(DeliveryTimedOut, match=r"may have been written; the last attempt: .*connection"):
            await delivery


@scripted()
async def test_batches_behind_the_one_that_fails_tell_its_reason(cluster: ScriptedCluster) -> None:
    cluster.topic("t")

    def full(asked: Asked) -> None:
        is_first = b"1" in asked.values
        asked.refuse(ErrorCode.KAFKA_STORAGE_ERROR if is_first else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    async with cluster.producer(**IMPATIENT) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.rules[ProduceRequest] = full
        for delivery in await sent_each(producer, b"1", b"2", b"3"):
            with pytest.raises(DeliveryTimedOut, match="the last attempt: t-0: KAFKA_STORAGE_ERROR"):
                await delivery


@scripted()
async def test_a_batch_that_was_never_sent_tells_why_its_leader_could_not_be_reached(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    topic = cluster.topic("u")
    async with cluster.producer(**IMPATIENT) as producer:
        await producer.send_and_wait("t", b"0")
        await producer.send_and_wait("u", b"0")
        topic.move(0, -1)
        await producer._cluster.refresh()
        without_leader = await producer.send("u", b"1")
        await asyncio.sleep(1)
        cluster.node(1).stop()
        await cluster.settle()
        unreachable = await producer.send("t", b"1")
        with pytest.raises(DeliveryTimedOut, match=r"u-0: .*it was not written; no leader is known for it"):
            await without_leader
        with pytest.raises(DeliveryTimedOut, match=r"its leader, node 1: cannot connect to broker1:9092"):
            await unreachable


@scripted()
async def test_a_full_disk_of_the_broker_is_told_with_what_to_do(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    full = refusing(
        ErrorCode.KAFKA_STORAGE_ERROR, 1000, error_message="the disk refused the write: No space left on device"
    )
    cluster.rules[ProduceRequest] = full
    async with cluster.producer(**IMPATIENT) as producer:
        with pytest.raises(DeliveryTimedOut, match=r"No space left on device .free space on the broker's disk"):
            await producer.send_and_wait("t", b"1")
    async with cluster.producer(retries=1) as producer:
        with pytest.raises(StorageFailed, match="No space left on device"):
            await producer.send_and_wait("t", b"1")


@scripted()
async def test_unsent_batches_that_expire_do_not_raise_the_epoch(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t", [1, 1])
    async with cluster.producer(**IMPATIENT) as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        topic.leaders[0] = -1
        topic.epochs[0] += 1
        await producer.send_and_wait("t", b"x", partition=1)
        await producer._cluster.refresh()
        unsent = await producer.send("t", b"2", partition=0)
        assert await fate(unsent) == "DeliveryTimedOut"
        topic.move(0, 1)
        assert (await producer.send_and_wait("t", b"3", partition=0)).offset == 1
    assert [batch.name[1:] for batch in cluster.produced if batch.partition == 0] == [(0, 0), (0, 1)]


@pytest.mark.parametrize("code", PERHAPS_WRITTEN)
@scripted()
async def test_a_refusal_after_which_it_may_be_in_the_log_leaves_the_batch_in_doubt(
    cluster: ScriptedCluster, code: int
) -> None:
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        cluster.rules[ProduceRequest] = refusing(code, 1000)
        with pytest.raises(DeliveryTimedOut, match="may have been written"):
            await producer.send_and_wait("t", b"1")


@scripted()
async def test_a_refusal_before_the_log_is_no_reason_for_doubt(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        cluster.rules[ProduceRequest] = refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 1000)
        with pytest.raises(DeliveryTimedOut, match="it was not written"):
            await producer.send_and_wait("t", b"1")


@scripted()
async def test_a_batch_behind_one_that_may_be_in_the_log_is_not_written_twice(cluster: ScriptedCluster) -> None:
    """The first is in the log though the broker said otherwise, and so is the second, whose answer was lost."""
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        cluster.skip(ProduceRequest)
        deliveries = await sent_each(producer, b"1")
        await asyncio.sleep(1)
        deliveries += await sent_each(producer, b"2")
        first, second = await cluster.next(ProduceRequest), await cluster.next(ProduceRequest)
        first.write_unanswered()
        first.refuse(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        second.write_unanswered()
        second.cut()
        cluster.rules[ProduceRequest] = refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 1000)
        assert await fate(deliveries[0]) == "DeliveryTimedOut"
        # The second one is out of order for a broker that has forgotten the last batches.
        cluster.rules[ProduceRequest] = refusing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1)
        assert await fate(deliveries[1]) == "OutOfOrderSequence"
        cluster.release(ProduceRequest)
        await producer.send_and_wait("t", b"3")
    assert cluster.logs("t") == [b"0", b"1", b"2", b"3"]


async def expired_in_flight(cluster: ScriptedCluster, producer: Producer) -> tuple[Asked, Delivery]:
    """A batch is under way, its time is over, and its answer is still to come; another one waits behind it."""
    await producer.send_and_wait("t", b"0")
    cluster.hold(ProduceRequest)
    cluster.skip(ProduceRequest)
    doomed = await producer.send("t", b"1")
    (await cluster.next(ProduceRequest)).cut()
    await asyncio.sleep(4)
    (await cluster.next(ProduceRequest)).cut()
    late = await cluster.next(ProduceRequest)
    assert cluster.loop.time() < 8
    assert await fate(doomed) == "DeliveryTimedOut"
    assert cluster.loop.time() == pytest.approx(8, abs=0.1), "not only when the request's own time is over"
    new = await producer.send("t", b"2")
    await asyncio.sleep(0.5)
    assert cluster.held(ProduceRequest) == [late], "nothing new behind a gap"
    return late, new


@scripted()
async def test_behind_a_batch_that_expired_in_the_queue_after_it_was_sent_nothing_goes_under_the_old_epoch(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        cluster.skip(ProduceRequest)
        doomed = await producer.send("t", b"1")
        (await cluster.next(ProduceRequest)).cut()
        cluster.node(1).stop()
        assert await fate(doomed) == "DeliveryTimedOut"
        cluster.release(ProduceRequest)
        await cluster.node(1).start()
        await producer.send_and_wait("t", b"2")
    assert [batch.name[1:] for batch in cluster.produced] == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
@scripted()
async def test_what_has_failed_is_not_sent_again_whatever_its_late_answer_says(
    cluster: ScriptedCluster, code: int
) -> None:
    cluster.topic("t")
    async with cluster.producer(**{**IMPATIENT, "batch_size": 1000, "linger_ms": 10}) as producer:
        cluster.hold(ProduceRequest)
        doomed = [await producer.send("t", b"1"), await producer.send("t", b"2")]
        await asyncio.sleep(4)
        (await cluster.next(ProduceRequest)).cut()
        late = await cluster.next(ProduceRequest)
        assert await fates(doomed) == ["DeliveryTimedOut", "DeliveryTimedOut"]
        assert late.is_open
        late.refuse(code)
        cluster.release(ProduceRequest)
        await producer.send_and_wait("t", b"3")
        await asyncio.sleep(1)
        assert producer._accumulator.used_bytes == 0
    assert cluster.logs("t") == [b"3"]


@scripted()
async def test_the_late_success_of_an_expired_batch_closes_the_gap(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        late, new = await expired_in_flight(cluster, producer)
        cluster.release(ProduceRequest)
        late.accept()
        assert await fate(new) == "written"
    assert cluster.produced[-1].name[1:] == (0, 2)
    assert cluster.logs("t") == [b"0", b"1", b"2"]


@scripted()
async def test_the_late_refusal_of_an_expired_batch_lets_the_epoch_be_raised(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        late, new = await expired_in_flight(cluster, producer)
        cluster.release(ProduceRequest)
        late.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert await fate(new) == "written"
    assert cluster.produced[-1].name[1:] == (1, 0)
    assert cluster.logs("t") == [b"0", b"2"]


@scripted()
async def test_the_lost_answer_of_an_expired_batch_lets_the_epoch_be_raised(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        late, new = await expired_in_flight(cluster, producer)
        cluster.release(ProduceRequest)
        late.write_unanswered()
        late.cut()
        assert await fate(new) == "written"
    assert cluster.produced[-1].name[1:] == (1, 0)
    assert cluster.logs("t") == [b"0", b"1", b"2"]


@scripted()
async def test_an_expired_batch_is_not_delivered_by_a_late_answer(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    calls: list[Delivery] = []
    async with cluster.producer(**IMPATIENT) as producer:
        cluster.hold(ProduceRequest)
        await producer.send("t", b"1", on_delivery=calls.append)
        await asyncio.sleep(3.9)
        (await cluster.next(ProduceRequest)).cut()
        late = await cluster.next(ProduceRequest)
        await asyncio.sleep(8.1 - cluster.loop.time())
        (delivery,) = calls
        late.accept()
        cluster.release(ProduceRequest)
        await producer.send_and_wait("t", b"2")
        assert calls == [delivery]
        assert isinstance(delivery.exception(), DeliveryTimedOut)


@scripted()
async def test_every_batch_of_one_request_expires_when_its_own_time_is_over(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    async with cluster.producer(**IMPATIENT) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        cluster.hold(ProduceRequest)
        cluster.skip(ProduceRequest)
        first = await producer.send("t", b"1", partition=0)
        (await cluster.next(ProduceRequest)).cut()
        cluster.node(1).stop()
        await asyncio.sleep(1)
        second = await producer.send("t", b"2", partition=1)
        await asyncio.sleep(5 - cluster.loop.time())
        await cluster.node(1).start()
        both = await cluster.next(ProduceRequest)
        assert sorted(both.values, key=str) == [b"1", b"2"]
        assert await fate(first) == "DeliveryTimedOut"
        assert cluster.loop.time() == pytest.approx(8, abs=0.1)
        assert not second.done()
        assert await fate(second) == "DeliveryTimedOut"
        assert cluster.loop.time() == pytest.approx(9, abs=0.1)
        both.accept()
        cluster.release(ProduceRequest)
