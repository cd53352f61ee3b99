"""Sequences and epochs on the wire: what is sent again, what gets another name, and who the producer is."""

from __future__ import annotations

import asyncio

import pytest
from producer_steps import IMPATIENT, ONE_RECORD_EACH, fate, fates, refusing, sent_each

from scripted_broker import Asked, ScriptedCluster, scripted, silent
from semel.client.errors import BadRecord, NotAuthorised, OutOfOrderSequence
from semel.client.producer.identity import LAST_EPOCH
from semel.wire.errors import ErrorCode
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.produce import ProduceRequest


@scripted()
async def test_sequences_count_records_from_zero_and_the_epoch_is_the_one_given(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.rules[InitProducerIdRequest] = lambda asked: InitProducerIdResponse(producer_id=5, producer_epoch=3)
    async with cluster.producer(linger_ms=5) as producer:
        for value in (b"a", b"b", b"c"):
            await producer.send("t", value)
        await producer.flush()
        await producer.send_and_wait("t", b"d")
    assert [batch.name for batch in cluster.produced] == [(5, 3, 0), (5, 3, 3)]


@scripted()
async def test_a_retried_batch_goes_out_with_the_very_same_bytes(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        cluster.hold(ProduceRequest)
        delivery = await producer.send("t", b"a")
        (await cluster.next(ProduceRequest)).refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        (await cluster.next(ProduceRequest)).cut()
        cluster.release(ProduceRequest)
        await delivery
    payloads = [batch.payload for batch in cluster.produced]
    assert len(payloads) == 3
    assert len(set(payloads)) == 1


@scripted()
async def test_while_a_partition_retries_only_its_oldest_batch_is_in_flight(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        deliveries = await sent_each(producer, b"1", b"2", b"3", b"4")
        await cluster.settle()
        first, second, third, fourth = cluster.held(ProduceRequest)
        first.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        await asyncio.sleep(1)
        assert len(cluster.held(ProduceRequest)) == 3, "nothing is sent again while others are under way"
        second.accept()
        third.accept()
        fourth.accept()
        deliveries += await sent_each(producer, b"5")
        for expected in (b"1", b"2", b"3", b"4"):
            await asyncio.sleep(2)
            (alone,) = cluster.held(ProduceRequest)
            assert alone.values == [expected]
            alone.accept()
        cluster.release(ProduceRequest)
        await asyncio.sleep(2)
        for held in cluster.held(ProduceRequest):
            held.accept()
        assert await fates(deliveries) == ["written"] * 5
    assert cluster.logs("t") == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert {batch.epoch for batch in cluster.produced} == {0}


@scripted()
async def test_batches_behind_a_lost_answer_are_all_sent_again_in_order(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        deliveries = await sent_each(producer, b"1", b"2", b"3")
        await cluster.settle()
        held = cluster.held(ProduceRequest)
        held[0].write_unanswered()
        held[1].write_unanswered()
        held[0].cut()
        cluster.release(ProduceRequest)
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == [1, 2, 3]
    assert cluster.logs("t") == [b"0", b"1", b"2", b"3"]
    assert [batch.sequence for batch in cluster.produced] == [0, 1, 2, 3, 1, 2, 3]


@scripted()
async def test_a_definite_refusal_raises_the_epoch_and_those_behind_it_are_written_once_and_in_order(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        deliveries = await sent_each(producer, b"0")
        await deliveries[0]
        cluster.hold(ProduceRequest)
        deliveries += await sent_each(producer, b"bad", b"2", b"3", b"4")
        await cluster.settle()
        bad, *others = cluster.held(ProduceRequest)
        bad.refuse(ErrorCode.INVALID_RECORD)
        for other in others:
            other.accept()  # out of order, and refused
        cluster.release(ProduceRequest)
        deliveries += await sent_each(producer, b"5")
        assert await fates(deliveries) == ["written", "BadRecord", "written", "written", "written", "written"]
    assert cluster.logs("t") == [b"0", b"2", b"3", b"4", b"5"]
    assert {batch.name[1] for batch in cluster.produced} == {0, 1}
    renamed = {batch.values[0]: batch.sequence for batch in cluster.produced if batch.epoch == 1}
    assert renamed == {b"2": 0, b"3": 1, b"4": 2, b"5": 3}


@scripted()
async def test_those_behind_a_definite_refusal_are_named_anew_also_if_their_answers_were_lost(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        await producer.send_and_wait("t", b"first")
        cluster.hold(ProduceRequest)
        deliveries = await sent_each(producer, b"0", b"1")
        await cluster.settle()
        first, second = cluster.held(ProduceRequest)
        first.refuse(ErrorCode.INVALID_RECORD)
        await cluster.settle()
        second.cut()
        cluster.release(ProduceRequest)
        assert await fates(deliveries) == ["BadRecord", "written"]
    assert cluster.logs("t") == [b"first", b"1"]
    assert cluster.produced[-1].name[1:] == (1, 0)


@scripted()
async def test_each_lane_has_epochs_of_its_own_and_others_follow_when_they_are_idle(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        await producer.send_and_wait("t", b"other", partition=1)
        cluster.rules[ProduceRequest] = refusing(ErrorCode.INVALID_RECORD, 1)
        with pytest.raises(BadRecord):
            await producer.send_and_wait("t", b"bad", partition=0)
        cluster.release(ProduceRequest)
        await producer.send_and_wait("t", b"good", partition=0)
        await producer.send_and_wait("t", b"other too", partition=1)
    assert [(batch.partition, *batch.name[1:]) for batch in cluster.produced] == [
        (1, 0, 0),
        (0, 0, 0),
        (0, 1, 0),
        (1, 1, 0),
    ]


# -- out of order


@scripted()
async def test_a_batch_in_doubt_that_is_called_out_of_order_fails_rather_than_be_written_twice(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        cluster.skip(ProduceRequest)
        doubtful = await producer.send("t", b"1")
        lost = await cluster.next(ProduceRequest)
        lost.write_unanswered()
        lost.cut()
        (await cluster.next(ProduceRequest)).refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        with pytest.raises(OutOfOrderSequence, match="may have been written"):
            await doubtful
        cluster.release(ProduceRequest)
        await producer.send_and_wait("t", b"2")
    assert cluster.logs("t") == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
)
@scripted()
async def test_a_broker_that_has_lost_the_producer_gets_the_batches_under_the_next_epoch(
    cluster: ScriptedCluster, code: int
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.logs.forget_producers()
        cluster.hold(ProduceRequest)
        deliveries = await sent_each(producer, b"1", b"2")
        await cluster.settle()
        for held in cluster.held(ProduceRequest):
            held.refuse(code)
        cluster.release(ProduceRequest)
        assert await fates(deliveries) == ["written", "written"]
    assert cluster.logs("t") == [b"0", b"1", b"2"]
    assert [batch.name[1:] for batch in cluster.produced[-2:]] == [(1, 0), (1, 1)]


@scripted()
async def test_a_broker_that_calls_everything_out_of_order_is_not_asked_without_pause(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**IMPATIENT) as producer:
        cluster.rules[ProduceRequest] = refusing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 10_000_000)
        assert await fate(await producer.send("t", b"1")) == "DeliveryTimedOut"
        assert len(cluster.all(ProduceRequest)) < 30
        cluster.release(ProduceRequest)
        await producer.send_and_wait("t", b"2")


@scripted()
async def test_retries_are_counted_for_out_of_order_batches_too(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH, retries=3) as producer:
        cluster.rules[ProduceRequest] = refusing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 10_000_000)
        assert await fate(await producer.send("t", b"1")) == "OutOfOrderSequence"
        assert len(cluster.all(ProduceRequest)) == 4
        cluster.release(ProduceRequest)
        await producer.send_and_wait("t", b"2")


# -- who the producer is


@scripted()
async def test_when_all_epochs_are_used_up_the_producer_takes_another_id(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    given = iter([(5, LAST_EPOCH), (6, 0)])

    def give(asked: Asked) -> InitProducerIdResponse:
        producer_id, epoch = next(given)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)

    cluster.rules[InitProducerIdRequest] = give
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        await producer.send_and_wait("t", b"1")
        cluster.rules[ProduceRequest] = refusing(ErrorCode.INVALID_RECORD, 1)
        assert await fate(await producer.send("t", b"bad")) == "BadRecord"
        await producer.send_and_wait("t", b"2")
    assert cluster.produced[-1].producer_id == 6
    assert cluster.produced[-1].sequence == 0
    assert cluster.logs("t") == [b"1", b"2"]


@scripted(nodes=2)
async def test_an_id_is_asked_of_the_least_loaded_node(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        for node_id in (1, 2):
            await producer._cluster.nodes.connect(node_id)
        busy = producer._cluster.nodes.connection(1)
        assert busy is not None
        cluster.node(1).rules[ProduceRequest] = silent
        asking = [busy.send(ProduceRequest(acks=-1), 9, type(None), 60) for _ in range(3)]  # type: ignore[type-var]
        await producer.send("t", b"1")
        asked = await cluster.next(InitProducerIdRequest)
        assert asked.broker.node_id == 2
        assert asked.body.transactional_id is None
        assert not any(future.done() for future in asking)
        cluster.node(1).rules.clear()
        cluster.node(1).cut_all()


@scripted()
async def test_an_id_is_asked_for_until_it_is_given(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.hold(InitProducerIdRequest)
    async with cluster.producer() as producer:
        delivery = await producer.send("t", b"1")
        first = await cluster.next(InitProducerIdRequest)
        first.answer(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        second = await cluster.next(InitProducerIdRequest)
        assert second.at_s - first.at_s >= 0.08
        second.cut()
        cluster.release(InitProducerIdRequest)
        await delivery
    assert len(cluster.all(InitProducerIdRequest)) == 3


@scripted()
async def test_an_id_is_asked_for_once_however_many_partitions_wait_for_it(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1, 1])
    async with cluster.producer() as producer:
        await asyncio.gather(*[producer.send_and_wait("t", b"1", partition=number) for number in range(3)])
    assert len(cluster.all(InitProducerIdRequest)) == 1


@scripted()
async def test_when_no_id_is_given_for_good_everything_fails_now_and_later(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1, 1])
    cluster.rules[InitProducerIdRequest] = lambda asked: InitProducerIdResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
    async with cluster.producer() as producer:
        deliveries = [await producer.send("t", b"1", partition=number) for number in range(3)]
        assert await fates(deliveries) == ["NotAuthorised"] * 3
        with pytest.raises(NotAuthorised):
            await producer.send_and_wait("t", b"2", partition=1)
        await producer.flush()
    assert len(cluster.all(InitProducerIdRequest)) == 1
    assert cluster.produced == []
