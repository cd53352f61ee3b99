"""What a program holds of a record: awaiting, asking, being called; and what flush and close do to it."""

from __future__ import annotations

import asyncio

import pytest
from producer_steps import ONE_RECORD_EACH

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import (
    BadRecord,
    Closed,
    DeliveryTimedOut,
    RefusedWithOthers,
    RetriableError,
    SemelError,
    TimedOut,
)
from semel.client.producer.batch import Delivery
from semel.client.values import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata
from semel.wire.errors import ErrorCode
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.produce import ProduceRequest, RecordError


@scripted()
async def test_a_delivery_tells_where_each_record_was_written(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=10) as producer:
        await producer.send_and_wait("t", b"0")
        deliveries = [await producer.send("t", b"x", timestamp_ms=1000 + number) for number in range(3)]
        assert not deliveries[0].done()
        with pytest.raises(asyncio.InvalidStateError):
            deliveries[0].result()
        with pytest.raises(asyncio.InvalidStateError):
            deliveries[0].exception()
        assert await deliveries[1] == RecordMetadata("t", 0, 2, 1001, CREATE_TIME)
        assert deliveries[0].done()
        assert deliveries[0].result().offset == 1
        assert deliveries[2].result() == RecordMetadata("t", 0, 3, 1002, CREATE_TIME)
        assert deliveries[0].exception() is None


@scripted()
async def test_the_brokers_time_is_told_where_the_topic_has_it(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        cluster.hold(ProduceRequest)
        delivery = await producer.send("t", b"x", timestamp_ms=5)
        (await cluster.next(ProduceRequest)).accept(log_append_time_ms=99)
        assert await delivery == RecordMetadata("t", 0, 0, 99, LOG_APPEND_TIME)


@scripted()
async def test_a_failed_delivery_raises_each_time_it_is_asked(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        cluster.hold(ProduceRequest)
        delivery = await producer.send("t", b"x")
        (await cluster.next(ProduceRequest)).refuse(ErrorCode.INVALID_RECORD)
        for _ in range(2):
            with pytest.raises(BadRecord):
                await delivery
            with pytest.raises(BadRecord):
                delivery.result()
        assert isinstance(delivery.exception(), BadRecord)


@scripted()
async def test_several_tasks_may_await_it_and_one_that_is_cancelled_does_not_disturb_the_others(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=10) as producer:
        cluster.hold(ProduceRequest)
        first, second = await producer.send("t", b"1"), await producer.send("t", b"2")

        async def wait(delivery: Delivery) -> int:
            return (await delivery).offset

        tasks = [asyncio.create_task(wait(delivery)) for delivery in (first, first, second)]
        asked = await cluster.next(ProduceRequest)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        assert tasks[0].cancelled()
        assert not first.done()
        asked.accept()
        assert [await tasks[1], await tasks[2]] == [0, 1]
        assert await first == await first


@scripted()
async def test_a_wait_with_a_time_limit_can_be_repeated(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        cluster.hold(ProduceRequest)
        delivery = await producer.send("t", b"x")

        async def wait() -> RecordMetadata:
            return await delivery

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 1)
        (await cluster.next(ProduceRequest)).accept()
        assert (await asyncio.wait_for(wait(), 1)).offset == 0


@scripted()
async def test_callbacks_are_called_once_with_the_delivery_and_one_that_raises_stops_nobody(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topic("t")
    calls: list[tuple[str, Delivery]] = []

    def bad(delivery: Delivery) -> None:
        calls.append(("bad", delivery))
        raise RuntimeError("the program's own mistake")

    async with cluster.producer(linger_ms=10) as producer:
        first = await producer.send("t", b"1", on_delivery=bad)
        second = await producer.send("t", b"2", on_delivery=lambda delivery: calls.append(("good", delivery)))
        first.add_done_callback(lambda delivery: calls.append(("later", delivery)))
        assert calls == []
        await second
        assert calls == [("bad", first), ("good", second), ("later", first)]
        assert first.result().offset == 0
        first.add_done_callback(lambda delivery: calls.append(("at once", delivery)))
        assert calls[-1] == ("at once", first)
        assert len(calls) == 4
    assert "the program's own mistake" in caplog.text


@scripted()
async def test_callbacks_are_called_for_failures_too(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    failures: list[SemelError | None] = []
    async with cluster.producer() as producer:
        cluster.rules[ProduceRequest] = lambda asked: asked.refuse(ErrorCode.INVALID_RECORD)  # type: ignore[func-returns-value]
        await producer.send("t", b"1", on_delivery=lambda delivery: failures.append(delivery.exception()))
        await producer.flush()
    assert [type(failure) for failure in failures] == [BadRecord]


# -- some records of a batch are to blame


async def refused_in_one_batch(
    cluster: ScriptedCluster, code: ErrorCode, record_errors: list[RecordError], *, lost_first: bool = False
) -> list[SemelError]:
    """What each of five records in one batch is told."""
    cluster.topic("t")
    async with cluster.producer(linger_ms=10) as producer:
        cluster.hold(ProduceRequest)
        deliveries = [await producer.send("t", b"%d" % number) for number in range(5)]
        asked = await cluster.next(ProduceRequest)
        if lost_first:
            asked.refuse(ErrorCode.REQUEST_TIMED_OUT)
            asked = await cluster.next(ProduceRequest)
        asked.refuse(code, error_message="the batch's own words", record_errors=record_errors)
        cluster.release(ProduceRequest)
        return [error for delivery in deliveries if (error := await failure_of(delivery)) is not None]


async def failure_of(delivery: Delivery) -> SemelError | None:
    with pytest.raises(SemelError) as error:
        await delivery
    assert delivery.exception() is error.value
    return error.value


@scripted()
async def test_bad_records_are_told_apart_from_those_that_were_only_with_them(cluster: ScriptedCluster) -> None:
    """KIP-467: librdkafka and Java do so as well."""
    named = [RecordError(batch_index=1, batch_index_error_message="no key"), RecordError(batch_index=3)]
    errors = await refused_in_one_batch(cluster, ErrorCode.INVALID_TIMESTAMP, named)
    kinds = [RefusedWithOthers, BadRecord, RefusedWithOthers, BadRecord, RefusedWithOthers]
    assert [type(error) for error in errors] == kinds
    assert "record 1 of the batch: INVALID_RECORD" in str(errors[1]), "one code cannot stand for two records"
    assert "no key" in str(errors[1])
    assert "the batch's own words" in str(errors[3])
    assert "2 of the 5 records" in str(errors[0])
    assert "send this record again" in str(errors[0])


@scripted()
async def test_of_a_single_bad_record_the_code_is_known(cluster: ScriptedCluster) -> None:
    named = [RecordError(batch_index=2, batch_index_error_message="too late")]
    errors = await refused_in_one_batch(cluster, ErrorCode.INVALID_TIMESTAMP, named)
    assert [error.code for error in errors] == [None, None, ErrorCode.INVALID_TIMESTAMP, None, None]


@scripted()
async def test_a_record_of_a_batch_in_doubt_is_not_said_to_be_fit_to_send_again(cluster: ScriptedCluster) -> None:
    """The settings of the topic may have changed between two attempts, and the first may have been written."""
    errors = await refused_in_one_batch(
        cluster, ErrorCode.INVALID_RECORD, [RecordError(batch_index=2)], lost_first=True
    )
    assert [type(error) for error in errors] == [BadRecord] * 5


@pytest.mark.parametrize("named", [[], [RecordError(batch_index=5), RecordError(batch_index=-1)]])
@scripted()
async def test_without_a_record_of_it_that_is_named_all_of_a_batch_failed_alike(
    cluster: ScriptedCluster, named: list[RecordError]
) -> None:
    errors = await refused_in_one_batch(cluster, ErrorCode.INVALID_RECORD, named)
    assert [type(error) for error in errors] == [BadRecord] * 5


# -- flush


@scripted()
async def test_a_flush_with_a_time_limit_gives_up_and_the_records_go_on(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        cluster.hold(ProduceRequest)
        delivery = await producer.send("t", b"x")
        with pytest.raises(TimedOut, match="1 batches were not delivered within 2 s"):
            await producer.flush(timeout_s=2)
        assert cluster.loop.time() == pytest.approx(2, abs=0.01)
        assert not delivery.done()
        (await cluster.next(ProduceRequest)).accept()
        await producer.flush(timeout_s=2)
        assert delivery.done()


@scripted()
async def test_a_flush_waits_for_retries_and_raises_their_failures_once(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(retries=1) as producer:
        cluster.rules[ProduceRequest] = lambda asked: asked.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)  # type: ignore[func-returns-value]
        delivery = await producer.send("t", b"x")
        with pytest.raises(RetriableError, match="NOT_ENOUGH_REPLICAS"):
            await producer.flush()
        assert delivery.exception() is not None
        await producer.flush()


# -- close


@scripted()
async def test_closing_delivers_what_was_sent(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer(linger_ms=60_000)
    await producer.start()
    delivery = await producer.send("t", b"x")
    await producer.close()
    assert delivery.result().offset == 0
    assert cluster.loop.time() < 1


@scripted()
async def test_closing_has_a_deadline_and_what_is_not_delivered_by_then_fails(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer(**ONE_RECORD_EACH, max_in_flight_requests_per_connection=1)
    await producer.start()
    cluster.hold(ProduceRequest)
    called: list[Delivery] = []
    deliveries = [await producer.send("t", b"x", on_delivery=called.append) for _ in range(3)]
    await producer.close(timeout_s=3)
    assert cluster.loop.time() == pytest.approx(3, abs=0.01)
    for delivery in deliveries:
        assert isinstance(delivery.exception(), Closed)
    assert set(called) == set(deliveries)
    assert len(called) == 3
    assert all(not broker.sessions for broker in cluster.brokers.values()) or await closed_soon(cluster)


async def closed_soon(cluster: ScriptedCluster) -> bool:
    await cluster.settle()
    return all(not broker.sessions for broker in cluster.brokers.values())


@scripted()
async def test_closing_at_once_is_possible(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer()
    await producer.start()
    cluster.hold(ProduceRequest)
    delivery = await producer.send("t", b"x")
    with pytest.raises(Closed):
        await producer.close(timeout_s=0)
    assert cluster.loop.time() < 0.1
    assert isinstance(delivery.exception(), Closed)


@scripted()
async def test_closing_while_a_batch_is_retried_goes_on_retrying_until_the_deadline(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer()
    await producer.start()
    left = 4

    def refuse_some(asked: Asked) -> None:
        nonlocal left
        left -= 1
        asked.refuse(ErrorCode.NOT_ENOUGH_REPLICAS) if left >= 0 else asked.accept()

    cluster.rules[ProduceRequest] = refuse_some
    delivery = await producer.send("t", b"x")
    await asyncio.sleep(0.05)
    await producer.close()
    assert delivery.result().offset == 0


@scripted()
async def test_closing_while_the_cluster_is_gone_ends_at_the_deadline(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer()
    await producer.start()
    await producer.send_and_wait("t", b"1")
    cluster.node(1).stop()
    delivery = await producer.send("t", b"2")
    await asyncio.sleep(1)
    with pytest.raises(Closed):
        await producer.close(timeout_s=5)
    assert isinstance(delivery.exception(), Closed)
    assert cluster.loop.time() == pytest.approx(6, abs=0.01)


@scripted()
async def test_closing_without_a_deadline_takes_no_longer_than_a_delivery_may(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.hold(InitProducerIdRequest)
    producer = cluster.producer(delivery_timeout_ms=40_000)
    await producer.start()
    delivery = await producer.send("t", b"2")
    with pytest.raises((Closed, DeliveryTimedOut)):
        await producer.close()
    assert isinstance(delivery.exception(), Closed | DeliveryTimedOut)
    assert cluster.loop.time() == pytest.approx(40, abs=0.1)


@scripted()
async def test_a_close_that_is_cancelled_still_ends_everything(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer()
    await producer.start()
    cluster.hold(ProduceRequest)
    delivery = await producer.send("t", b"x")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(1)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert isinstance(delivery.exception(), Closed)
    assert await closed_soon(cluster)


@scripted()
async def test_an_exception_in_the_block_closes_the_producer_too(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer()
    sent: list[Delivery] = []

    async def fail() -> None:
        async with producer:
            sent.append(await producer.send("t", b"x"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    (delivery,) = sent
    assert delivery.result().offset == 0
    with pytest.raises(Closed):
        await producer.send("t", b"x")
