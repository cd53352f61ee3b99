"""When a batch is sent, with which others, to whom; and what follows an answer that does not come or says no."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from scripted_answers import DEFAULTS
from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import BadRecord, DeliveryTimedOut, RetriableError, UnsupportedByBroker
from semel.records.batch import HEADER_BYTES
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.api_versions import ApiVersionsRequest
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceRequest, ProduceResponse

ONE_RECORD_EACH: dict[str, Any] = {"batch_size": 1, "linger_ms": 0}


# -- when


@scripted()
async def test_a_batch_that_is_not_full_lingers(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=40) as producer:
        await producer.send_and_wait("t", b"first")
        began_s = cluster.loop.time()
        first = await producer.send("t", b"a")
        await asyncio.sleep(0.02)
        second = await producer.send("t", b"b")
        await asyncio.gather(first, second)
        assert cluster.loop.time() - began_s == pytest.approx(0.040, abs=0.001)
    assert cluster.produced[-1].values == (b"a", b"b")


@scripted()
async def test_without_linger_given_a_batch_that_is_awaited_goes_at_once(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"first")
        began_s = cluster.loop.time()
        await producer.send_and_wait("t", b"a")
        assert cluster.loop.time() == pytest.approx(began_s, abs=0.0001)


@scripted()
async def test_without_linger_given_a_batch_that_nobody_awaits_waits_for_five_milliseconds(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"first")
        began_s = cluster.loop.time()
        await producer.send("t", b"a")
        await producer.send("t", b"b")
        asked = [await cluster.next(ProduceRequest), await cluster.next(ProduceRequest)]
        assert asked[1].at_s - began_s == pytest.approx(0.005, abs=0.0001)
        assert asked[1].values == [b"a", b"b"]


@scripted()
async def test_a_linger_that_is_given_holds_also_if_somebody_awaits(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    async with cluster.producer(linger_ms=5) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        began_s = cluster.loop.time()
        awaited = asyncio.create_task(producer.send_and_wait("t", b"a", partition=0))
        await asyncio.sleep(0.002)
        await producer.send("t", b"another turn of the sender", partition=1)
        await awaited
        assert cluster.loop.time() - began_s == pytest.approx(0.005, abs=0.0001)


@scripted()
async def test_a_full_batch_goes_at_once_and_the_begun_one_lingers(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=1000, batch_size=300) as producer:
        deliveries = [await producer.send("t", b"x" * 100) for _ in range(3)]
        await asyncio.gather(*deliveries[:2])
        assert cluster.loop.time() < 0.01
        assert not deliveries[2].done()
        await deliveries[2]
        assert cluster.loop.time() == pytest.approx(1, abs=0.01)
    assert [len(batch.values) for batch in cluster.produced] == [2, 1]


@scripted()
async def test_a_flush_waits_for_no_linger_and_only_for_what_is_there(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=10_000) as producer:
        delivery = await producer.send("t", b"a")
        await producer.flush()
        assert delivery.done()
        assert cluster.loop.time() < 0.01
        late = await producer.send("t", b"b")
        await asyncio.sleep(1)
        assert not late.done(), "after the flush batches linger again"


@scripted()
async def test_a_flush_ends_though_others_go_on_sending(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:

        async def send_on() -> None:
            while True:
                await producer.send("t", b"more")
                await asyncio.sleep(0.0001)

        cluster.world.wires.latency_ms = (0.3, 0.3)
        sending = asyncio.create_task(send_on())
        delivery = await producer.send("t", b"a")
        await producer.flush(timeout_s=5)
        assert delivery.done()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


@scripted()
async def test_nothing_lingers_while_somebody_waits_for_room(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=10_000, buffer_memory=1000) as producer:
        for _ in range(8):
            await producer.send("t", b"x" * 300)
            assert producer._accumulator.used_bytes <= 1000 + HEADER_BYTES
        assert cluster.loop.time() < 0.1


# -- what goes together


@scripted()
async def test_batches_for_one_node_share_a_request_but_only_one_of_each_partition(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1, 1])
    async with cluster.producer(batch_size=1, linger_ms=50) as producer:
        for _ in range(2):
            for number in range(3):
                await producer.send("t", b"x", partition=number)
        await producer.flush()
    for asked in cluster.all(ProduceRequest):
        partitions = [batch.partition for batch in asked.sent]
        assert len(partitions) == len(set(partitions))
    assert max(len(asked.sent) for asked in cluster.all(ProduceRequest)) == 3


@scripted(nodes=2)
async def test_each_node_gets_what_it_leads(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 2, 1])
    async with cluster.producer() as producer:
        await asyncio.gather(*[producer.send_and_wait("t", b"x", partition=number) for number in range(3)])
    for asked in cluster.all(ProduceRequest):
        for batch in asked.sent:
            assert cluster.topics["t"].leaders[batch.partition] == asked.broker.node_id


@scripted()
async def test_no_more_requests_wait_on_a_connection_than_allowed(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH, max_in_flight_requests_per_connection=3) as producer:
        await producer.send_and_wait("t", b"first")
        cluster.hold(ProduceRequest)
        deliveries = [await producer.send("t", b"%d" % number) for number in range(5)]
        await cluster.settle()
        held = cluster.held(ProduceRequest)
        assert [asked.values for asked in held] == [[b"0"], [b"1"], [b"2"]]
        held[0].accept()
        await cluster.settle()
        assert [asked.values for asked in cluster.held(ProduceRequest)] == [[b"1"], [b"2"], [b"3"]]
        cluster.release(ProduceRequest)
        for asked in cluster.held(ProduceRequest):
            asked.accept()
        await asyncio.gather(*deliveries)
    assert cluster.logs("t") == [b"first", b"0", b"1", b"2", b"3", b"4"]


@scripted()
async def test_a_request_stays_within_its_size_and_an_oversized_batch_goes_alone(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1, 1, 1])
    async with cluster.producer(linger_ms=50, max_request_size=1000, batch_size=5000) as producer:
        for number, size in enumerate([300, 300, 300, 800]):
            await producer.send("t", b"x" * size, partition=number)
        await producer.flush()
    sizes = [sorted(len(value or b"") for value in asked.values) for asked in cluster.all(ProduceRequest)]
    assert sorted(sizes) == [[300], [300, 300], [800]] or sorted(sizes) == [[300, 300], [300], [800]]


@scripted()
async def test_the_next_request_begins_with_another_partition(cluster: ScriptedCluster) -> None:
    """Two requests' worth for each of three partitions, and a size that lets only one into a request."""
    cluster.topic("t", [1, 1, 1])
    settings: dict[str, Any] = {"max_request_size": 700, "batch_size": 600, "max_in_flight_requests_per_connection": 1}
    async with cluster.producer(linger_ms=1000, **settings) as producer:
        for _ in range(4):
            for number in range(3):
                await producer.send("t", b"x" * 500, partition=number)
        await producer.flush()
    order = [asked.sent[0].partition for asked in cluster.all(ProduceRequest)]
    for start in range(0, 12, 3):
        assert sorted(order[start : start + 3]) == [0, 1, 2], order


@scripted()
async def test_no_partition_is_starved_however_often_the_sender_is_woken(cluster: ScriptedCluster) -> None:
    """What wakes it between two answers must not decide whose turn it is."""
    cluster.topic("t", [1, 1])
    settings: dict[str, Any] = {"max_request_size": 700, "batch_size": 600, "max_in_flight_requests_per_connection": 1}
    async with cluster.producer(linger_ms=1000, **settings) as producer:
        for number in (0, 1):
            for _ in range(7):
                await producer.send("t", b"x" * 500, partition=number)
        cluster.world.wires.latency_ms = (1.0, 1.0)
        for _ in range(6):
            await cluster.next(ProduceRequest)
            producer._sender.wake()
        await producer.flush()
    order = [asked.sent[0].partition for asked in cluster.all(ProduceRequest)]
    assert Counter(order[1:7]) == {0: 3, 1: 3}, order


# -- to whom


@scripted(nodes=2)
async def test_a_partition_that_has_moved_is_followed(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
        topic.move(0, 2)
        cluster.node(1).rules[ProduceRequest] = refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await producer.send_and_wait("t", b"2")
    assert {asked.broker.node_id for asked in cluster.all(ProduceRequest)[:-1]} == {1}
    assert cluster.all(ProduceRequest)[-1].broker.node_id == 2
    assert cluster.logs("t") == [b"1", b"2"]


def refusing(code: int, **fields: Any) -> Any:
    def rule(asked: Asked) -> None:
        asked.refuse(code, **fields)

    return rule


@scripted(nodes=2)
async def test_a_leader_named_with_the_refusal_is_followed_at_once(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
        topic.move(0, 2)
        cluster.hold(MetadataRequest)
        cluster.node(1).rules[ProduceRequest] = refusing(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=1),
            node_endpoints=[NodeEndpoint(node_id=2, host="broker2", port=9092)],
        )
        before_s = cluster.loop.time()
        await producer.send_and_wait("t", b"2")
        assert cluster.loop.time() == pytest.approx(before_s, abs=0.001), "no pause, no metadata"
        assert cluster.held(MetadataRequest) == []


@scripted(nodes=2)
async def test_an_old_leader_named_with_the_refusal_is_no_news(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    topic.epochs = [5]
    async with cluster.producer() as producer:
        cluster.node(1).rules[ProduceRequest] = refusing(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
        )
        delivery = await producer.send("t", b"1")
        first = await cluster.next(ProduceRequest)
        cluster.node(1).rules.clear()
        second = await cluster.next(ProduceRequest)
        await delivery
        assert second.broker.node_id == 1
        assert second.at_s - first.at_s >= 0.08


@scripted()
async def test_a_partition_without_a_leader_waits_for_one(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t", [1, -1])
    async with cluster.producer() as producer:
        delivery = await producer.send("t", b"1", partition=1)
        await asyncio.sleep(3)
        assert not delivery.done()
        topic.move(1, 1)
        await delivery
        assert cluster.loop.time() < 4


@scripted()
async def test_topics_go_by_id_where_both_sides_know_ids(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
    (asked,) = cluster.all(ProduceRequest)
    assert asked.version == 13
    assert asked.body.topic_data[0].topic_id == cluster.topics["t"].topic_id


@scripted()
async def test_topics_go_by_name_where_a_topic_has_no_id(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.topic("u").topic_id = NO_UUID
    async with cluster.producer(linger_ms=10) as producer:
        both = [await producer.send(name, b"1") for name in ("t", "u")]
        await asyncio.gather(*both)
    (asked,) = cluster.all(ProduceRequest)
    assert asked.version == 12
    assert {topic.name for topic in asked.body.topic_data} == {"t", "u"}


@scripted()
async def test_topics_go_by_name_to_a_broker_that_knows_no_ids(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.limits[0] = (0, 9)
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
    (asked,) = cluster.all(ProduceRequest)
    assert (asked.version, asked.body.topic_data[0].name) == (9, "t")


@scripted()
async def test_a_broker_that_serves_no_version_we_know_fails_the_records_with_that(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.limits[0] = (90, 99)
    async with cluster.producer() as producer:
        with pytest.raises(UnsupportedByBroker, match="Produce"):
            await producer.send_and_wait("t", b"1")
        assert cluster.loop.time() < 1


@scripted()
async def test_a_topic_made_anew_is_written_to_under_its_new_id(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
        topic.topic_id = b"another topic id"
        cluster.logs.values.clear()
        cluster.logs.forget_producers()
        cluster.rules[ProduceRequest] = unless_id_is(topic.topic_id)
        assert (await producer.send_and_wait("t", b"2")).offset == 0
    assert cluster.logs("t") == [b"2"]


def unless_id_is(topic_id: bytes) -> Any:
    def rule(asked: Asked) -> None:
        if asked.body.topic_data[0].topic_id == topic_id:
            asked.accept()
        else:
            asked.refuse(ErrorCode.UNKNOWN_TOPIC_ID)

    return rule


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
