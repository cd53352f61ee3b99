"""What follows an answer that does not come, or says no; and what order means without idempotence."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from producer_steps import ONE_RECORD_EACH, refusing

from scripted_answers import DEFAULTS
from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import BadRecord, DeliveryTimedOut, RetriableError
from semel.wire.errors import ErrorCode
from semel.wire.spec.api_versions import ApiVersionsRequest
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.produce import ProduceRequest, ProduceResponse

# -- what does not go well


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    ],
)
@scripted()
async def test_errors_that_may_pass_are_tried_again_after_longer_and_longer_pauses(
    cluster: ScriptedCluster, code: int
) -> None:
    cluster.topic("t")
    left = 6

    def rule(asked: Asked) -> None:
        nonlocal left
        left -= 1
        asked.refuse(code) if left >= 0 else asked.accept()

    cluster.rules[ProduceRequest] = rule
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
    times_s = [asked.at_s for asked in cluster.all(ProduceRequest)]
    pauses_s = [after - before for before, after in pairwise(times_s)]
    for pause_s, expected_s in zip(pauses_s, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
        assert expected_s * 0.8 <= pause_s <= expected_s * 1.2 + 0.001
    assert len({round(pause_s, 6) for pause_s in pauses_s[-2:]}) == 2, "with jitter"


@scripted()
async def test_the_pause_after_a_success_is_short_again(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        for _ in range(3):
            cluster.hold(ProduceRequest)
            cluster.skip(ProduceRequest)
            delivery = await producer.send("t", b"1")
            first = await cluster.next(ProduceRequest)
            first.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
            second = await cluster.next(ProduceRequest)
            assert second.at_s - first.at_s <= 0.121
            second.accept()
            await delivery


@scripted()
async def test_a_batch_is_sent_again_as_often_as_retries_allow(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.rules[ProduceRequest] = refusing(ErrorCode.NOT_ENOUGH_REPLICAS)
    async with cluster.producer(retries=2) as producer:
        with pytest.raises(RetriableError, match="NOT_ENOUGH_REPLICAS"):
            await producer.send_and_wait("t", b"1")
    assert len(cluster.all(ProduceRequest)) == 3


@pytest.mark.parametrize(
    ("code", "kind"), [(ErrorCode.INVALID_RECORD, BadRecord), (ErrorCode.INVALID_TIMESTAMP, BadRecord)]
)
@scripted()
async def test_errors_that_stay_are_not_tried_again(cluster: ScriptedCluster, code: int, kind: type[Exception]) -> None:
    cluster.topic("t")
    cluster.rules[ProduceRequest] = refusing(code, error_message="the broker's own words")
    async with cluster.producer() as producer:
        with pytest.raises(kind, match="the broker's own words"):
            await producer.send_and_wait("t", b"1")
    assert len(cluster.all(ProduceRequest)) == 1


@scripted()
async def test_one_partition_of_a_request_may_fail_alone(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    async with cluster.producer(linger_ms=10) as producer:
        cluster.rules[ProduceRequest] = refusing(ErrorCode.INVALID_RECORD, partition=0)
        bad, good = await producer.send("t", b"0", partition=0), await producer.send("t", b"1", partition=1)
        with pytest.raises(BadRecord):
            await bad
        assert (await good).offset == 0


@scripted()
async def test_an_answer_without_a_word_of_a_batch_leaves_it_in_doubt(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        cluster.hold(ProduceRequest)
        delivery = await producer.send("t", b"1")
        (await cluster.next(ProduceRequest)).answer(ProduceResponse())
        cluster.release(ProduceRequest)
        assert (await delivery).offset == 0
    assert len(cluster.all(ProduceRequest)) == 2
    assert len({batch.payload for batch in cluster.produced}) == 1


@scripted()
async def test_a_duplicate_sequence_is_a_success_without_an_offset(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.rules[ProduceRequest] = refusing(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    async with cluster.producer() as producer:
        assert (await producer.send_and_wait("t", b"1")).offset == -1


@scripted()
async def test_metadata_is_asked_for_again_after_a_lost_leader_and_not_after_a_full_broker(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
        for code, more in ((ErrorCode.NOT_ENOUGH_REPLICAS, 0), (ErrorCode.LEADER_NOT_AVAILABLE, 1)):
            await asyncio.sleep(1)
            before = len(cluster.all(MetadataRequest))
            cluster.hold(ProduceRequest)
            cluster.skip(ProduceRequest)
            delivery = await producer.send("t", b"2")
            (await cluster.next(ProduceRequest)).refuse(code)
            cluster.release(ProduceRequest)
            await delivery
            await asyncio.sleep(0.5)
            assert len(cluster.all(MetadataRequest)) == before + more


@scripted()
async def test_a_throttled_connection_is_left_alone_until_its_time(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.hold(ProduceRequest)
        cluster.skip(ProduceRequest)
        delivery = await producer.send("t", b"1")
        first = await cluster.next(ProduceRequest)
        first.accept(throttle_time_ms=3000)
        await delivery
        cluster.release(ProduceRequest)
        await producer.send_and_wait("t", b"2")
        assert cluster.loop.time() - first.at_s == pytest.approx(3, abs=0.01)


@scripted()
async def test_a_lost_node_is_connected_to_again_and_everything_is_delivered(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
        cluster.node(1).stop()
        delivery = await producer.send("t", b"2")
        await asyncio.sleep(10)
        assert not delivery.done()
        await cluster.node(1).start()
        await delivery
        assert cluster.loop.time() < 12.5
    assert cluster.logs("t") == [b"1", b"2"]


@scripted()
async def test_a_request_that_is_not_answered_in_time_is_repeated_on_another_connection(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(request_timeout_ms=2_000) as producer:
        cluster.hold(ProduceRequest)
        delivery = await producer.send("t", b"1")
        first = await cluster.next(ProduceRequest)
        first.write_unanswered()
        cluster.release(ProduceRequest)
        assert (await delivery).offset == 0
        second = cluster.all(ProduceRequest)[1]
        assert second.session is not first.session
        assert second.at_s - first.at_s == pytest.approx(2.1, abs=0.1)
    assert cluster.logs("t") == [b"1"]


@scripted()
async def test_a_cluster_that_stays_away_fails_records_when_their_time_is_over(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(delivery_timeout_ms=30_000, request_timeout_ms=1_000) as producer:
        await producer.send_and_wait("t", b"1")
        cluster.node(1).stop()
        began_s = cluster.loop.time()
        with pytest.raises(DeliveryTimedOut):
            await producer.send_and_wait("t", b"2")
        assert cluster.loop.time() - began_s == pytest.approx(30, abs=0.01)


@scripted()
async def test_a_node_that_ends_connections_right_after_they_are_made_is_tried_again(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
        left = 3

        def answer_and_hang_up(asked: Asked) -> None:
            nonlocal left
            left -= 1
            answer = DEFAULTS[ApiVersionsRequest](asked)
            assert answer is not None
            asked.answer(answer)
            if left >= 0:
                asked.session.close()

        cluster.rules[ApiVersionsRequest] = answer_and_hang_up
        cluster.node(1).cut_all()
        await cluster.settle()
        await producer.send_and_wait("t", b"2")
        assert cluster.loop.time() < 5


# -- without idempotence


@scripted()
async def test_without_idempotence_batches_bear_no_name_and_no_id_is_asked_for(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(enable_idempotence=False, acks=1) as producer:
        await producer.send_and_wait("t", b"1")
    assert [batch.name for batch in cluster.produced] == [(-1, -1, -1)]
    assert cluster.kinds == ["Produce"]
    assert cluster.all(ProduceRequest)[0].body.acks == 1


@scripted()
async def test_without_idempotence_and_with_several_in_flight_a_refused_batch_is_overtaken(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH, enable_idempotence=False) as producer:
        cluster.hold(ProduceRequest)
        deliveries = [await producer.send("t", b"%d" % number) for number in range(3)]
        await cluster.settle()
        first, *others = cluster.held(ProduceRequest)
        first.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        for other in others:
            other.accept()
        cluster.release(ProduceRequest)
        await asyncio.gather(*deliveries)
    assert cluster.logs("t") == [b"1", b"2", b"0"]


@scripted(nodes=2)
async def test_without_idempotence_and_with_one_in_flight_order_is_kept_also_when_the_leader_moves(
    cluster: ScriptedCluster,
) -> None:
    topic = cluster.topic("t")
    settings: dict[str, Any] = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    async with cluster.producer(**ONE_RECORD_EACH, **settings) as producer:
        cluster.hold(ProduceRequest)
        deliveries = [await producer.send("t", b"%d" % number) for number in range(3)]
        first = await cluster.next(ProduceRequest)
        topic.move(0, 2)
        cluster.node(2).rules[ProduceRequest] = lambda asked: asked.accept()  # type: ignore[func-returns-value]
        producer._cluster.learn_leader("t", 0, 2, 1, [])
        await asyncio.sleep(1)
        first.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await asyncio.gather(*deliveries)
    assert cluster.logs("t") == [b"0", b"1", b"2"]


@scripted()
async def test_acks_zero_waits_for_no_answer_and_knows_no_offset(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH, enable_idempotence=False, acks=0) as producer:
        for number in range(8):
            assert (await producer.send_and_wait("t", b"%d" % number)).offset == -1
        await cluster.settle()
    assert cluster.logs("t") == [b"%d" % number for number in range(8)]
    assert {asked.body.acks for asked in cluster.all(ProduceRequest)} == {0}


@scripted()
async def test_acks_zero_does_not_fill_memory_when_the_broker_does_not_read(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    settings: dict[str, Any] = {"enable_idempotence": False, "acks": 0, "buffer_memory": 1 << 20, "linger_ms": 0}
    async with cluster.producer(**settings, max_block_ms=1000) as producer:
        await producer.send_and_wait("t", b"1")
        connection = producer._cluster.nodes.connection(1)
        assert connection is not None
        session = cluster.node(1).sessions[-1]
        session.pause()

        async def send_many() -> None:
            for _ in range(1000):
                await producer.send("t", b"x" * 10_000)

        with pytest.raises(RetriableError):
            await send_many()
        assert connection.link.unsent_bytes <= 4 << 20
        session.resume()
        await producer.send_and_wait("t", b"2")
